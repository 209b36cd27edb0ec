"""H, and credentials wherever they belong: nodes."""

from __future__ import annotations

from tests.hazards.reds.patch import NO_SECOND_TRY, Red, red

_H = "test_hazards_h.py::test_h_"
_CREDENTIALS = "test_hazards_credentials.py::test_h_"

IMPATIENT = ("nodes/io/delivery.py", "COMMAND_SECONDS = 30.0", "COMMAND_SECONDS = 1.0")
"""A mail server that says nothing is left sooner."""

TABLE: dict[str, Red] = {
    "h1": red(
        _H + "h1_numbers_and_booleans_in_query_and_headers_are_sent",
        ("nodes/io/request.py", "        if each is not None\n    ]", "        if type(each) is str\n    ]"),
    ),
    "h2": red(
        _CREDENTIALS + "h2_what_is_stored_is_what_is_sent",
        (
            "nodes/io/authorization.py",
            "basic(fields.username, fields.password)",
            'basic(getattr(fields, "user", ""), fields.password)',
        ),
    ),
    "h3-size": red(
        _H + "h3_an_answer_has_a_largest_size",
        ("nodes/io/unpack.py", "if len(body) > most:", "if False:"),
        ("nodes/io/unpack.py", "if received > most + SMALL:", "if False:"),
        ("nodes/io/unpack.py", "min(_PIECE, most + 1 - len(body))", "_PIECE"),
    ),
    "h3-pool": red(
        _H + "h3_calls_share_a_pool",
        ("nodes/world.py", "if self._client is None:", "if True:"),
    ),
    "h3-private": red(
        _H + "h3_private_addresses_are_not_called[http://[::1]/]",
        ("nodes/io/guard.py", 'if self._policy == "open" or self._names_host(host):', "if True:"),
    ),
    "h3-redirect": red(
        _H + "h3_nor_through_a_redirect",
        ("nodes/io/client.py", "self._guard.check_target(where)", "pass"),
    ),
    "h3-rebinding": red(
        _H + "h3_nor_through_a_name_that_changes_its_address",
        (
            "nodes/io/guard.py",
            "        for each in found:\n            if not",
            "        for each in found[:1]:\n            if not",
        ),
        (
            "nodes/io/guard.py",
            "        return found\n\n    def _names_host",
            "        return found[1:]\n\n    def _names_host",
        ),
        ("nodes/io/client.py", "if peer in route.peers and not passed:", "if True:"),
    ),
    "h4-headers": red(
        _H + "h4_a_line_break_adds_no_header_and_no_recipient",
        ("nodes/io/mail.py", 'return _CONTROL.sub(" ", text).replace("=?", "= ?").strip()', "return text"),
    ),
    "h4-silence": red(
        _H + "h4_a_silent_mail_server_is_not_waited_for",
        ("nodes/io/delivery.py", "asyncio.timeout(WHOLE_SECONDS)", "asyncio.timeout(None)"),
        IMPATIENT,
    ),
    "h4-tls": red(
        _H + "h4_implicit_tls_is_spoken",
        ("nodes/io/mailserver.py", '"use_tls": self.security == "tls"', '"use_tls": False'),
        IMPATIENT,
    ),
    "h5": red(
        _H + "h5_a_number_is_the_date_it_says",
        ("nodes/data/datetime.py", "or isinstance(date, UnsetType):", "or not isinstance(date, str):"),
    ),
    "h6": red(
        _H + "h6_anything_can_be_logged",
        ("nodes/data/log.py", "Output(call.parameters.message)", 'Output("" + call.parameters.message)'),
    ),
    "f7": red(
        _CREDENTIALS + "f7_who_wakes_up_uses_the_credential_of_today",
        (
            "nodes/usage.py",
            "found = await secret.resolve(str(id or name)) if secret is not None else None",
            'kept = globals().setdefault("KEPT", {})\n'
            "        found = kept[name] = kept.get(name) or await secret.resolve(str(id or name))",
        ),
    ),
    "i6-use": red(
        _CREDENTIALS + "i6_whether_a_credential_may_be_used_is_asked_when_it_is_used",
        ("nodes/usage.py", "            check_host(found, host)\n", "            pass\n"),
    ),
    "i6-policy": red(
        _CREDENTIALS + "i6_a_failure_follows_the_policy_of_its_node",
        (
            "nodes/registry.py",
            "    except (StoreAway, Ended, TokenEnded):\n",
            "    except (StoreAway, Ended, TokenEnded, NodeFailure):\n",
        ),
        NO_SECOND_TRY,
    ),
    "i7-row": red(
        _CREDENTIALS + "i7_a_credential_is_in_no_row",
        ("runtime/runner.py", "return call.usage.ended(outcome)", "return outcome"),
    ),
    "i7-document": red(
        _CREDENTIALS + "i7_a_document_names_a_credential_and_holds_none",
        ("core/fields.py", "for key in value.keys() - _CREDENTIALS.keys():", "for key in ():"),
    ),
    "i7-expression": red(
        _CREDENTIALS + "i7_no_expression_reaches_a_credential",
        (
            "core/expr/names.py",
            '    "error": "$error",\n',
            '    "error": "$error",\n    "credentials": "$credentials",\n',
        ),
    ),
}
