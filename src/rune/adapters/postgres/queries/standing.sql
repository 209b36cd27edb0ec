-- standing: who asks, whether they may make tables here, and what time it is there in epoch ms. Changes nothing.
SELECT current_user::text, coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint
