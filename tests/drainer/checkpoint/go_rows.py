"""Go rows: checkpoint rows as Go drainers of several releases wrote them."""

from __future__ import annotations

from drainer.checkpoint.value import Checkpoint

# Rows as releases of the Go drainer wrote them, and what they mean.
GO_ROWS = {
    "before 2.1": (
        '{"commitTS":402902345678901249,"positions":{"pump-1":{"Suffix":3,"Offset":1234}}}',
        Checkpoint(402902345678901249, False, 0),
    ),
    "2.1": (
        '{"commitTS":408288000000000001,"ts-map":{"master-ts":408288000000000001,"slave-ts":5}}',
        Checkpoint(408288000000000001, False, 0, ts_map={"master-ts": 408288000000000001, "slave-ts": 5}),
    ),
    "3.0.10": ('{"consistent":true,"commitTS":5,"ts-map":{}}', Checkpoint(5, True, 0)),
    "never released": ('{"status":1,"commitTS":5,"ts-map":null}', Checkpoint(5, False, 0)),
    "4.0.3, upgraded": (
        '{"consistent":false,"commitTS":9,"ts-map":{"master-ts":1,"primary-ts":8,"secondary-ts":7,"slave-ts":2}}',
        Checkpoint(9, False, 0, ts_map={"master-ts": 1, "primary-ts": 8, "secondary-ts": 7, "slave-ts": 2}),
    ),
    "4.0.10": (
        '{"consistent":true,"commitTS":470607835489370114,"ts-map":{},"schema-version":82}',
        Checkpoint(470607835489370114, True, 82),
    ),
    "by hand": ('{ "CommitTS": 5, "Schema-Version": 3, "note": [1] }', Checkpoint(5, False, 3)),
    "started over": ("{}", Checkpoint(0, False, 0)),
}
