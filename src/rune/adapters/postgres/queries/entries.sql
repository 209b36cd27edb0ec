-- entries: the workflows by name; those out of sight too if $1. Changes nothing.
SELECT w.id, v.name, v.number, w.deployed_at, w.hidden_at IS NOT NULL AS hidden,
    (SELECT max(o.number) FROM version AS o WHERE o.workflow = w.id) AS versions,
    ARRAY(SELECT a.name FROM alias AS a WHERE a.workflow = w.id ORDER BY a.name) AS names,
    ARRAY(SELECT a.number FROM alias AS a WHERE a.workflow = w.id ORDER BY a.name) AS numbers
FROM workflow AS w
JOIN alias AS l ON l.workflow = w.id AND l.name = 'latest'
JOIN version AS v ON v.workflow = w.id AND v.number = l.number
WHERE $1 OR w.hidden_at IS NULL ORDER BY w.id
