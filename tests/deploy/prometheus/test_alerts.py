"""Each alert fires in the scenario that is to provoke it, for whom it is about, and nothing else does.

`promtool test rules` reckons with series that stand here, so half an hour passes in no time. It is given a
cluster at work, two pumps, a drainer and its standby; a scenario changes some series of it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.deploy.prometheus.rules import RULE_FILES, alerts, promtool

STEP_S: Final = 15
FOREVER: Final = 100_000
"""Steps of a value that stays: to the end of its scenario."""
REST: Final = FOREVER * STEP_S / 60
GIB: Final = 1 << 30

PUMPS: Final = ("pump-1:8250", "pump-2:8250")
DRAINER: Final = "drainer-1:8249"
STANDBY: Final = "drainer-2:8249"
SPARK: Final = "spark-1:9100"


def named(name: str, instance: str, /, **labels: str) -> str:
    """A series of a node."""
    job = instance.partition("-")[0]
    given = {"job": job, "instance": instance, **labels}
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in given.items()) + "}"


def still(value: float) -> str:
    """In promtool's notation."""
    return f"{value}x{FOREVER}"


NOTHING: Final = f"_x{FOREVER}"
"""No series."""


def moving(by: float, since: float = 0) -> str:
    """Growing with each step."""
    return f"{since}+{by}x{FOREVER}"


def then(*parts: tuple[float, float]) -> str:
    """Values, and for how many minutes each."""
    return " ".join(
        f"{value}x{FOREVER if minutes == REST else round(minutes * 60 / STEP_S) - 1}"
        for value, minutes in parts
    )


def born(minutes: float, value: float) -> str:
    """A series that begins late, as one with a label that was never seen."""
    return f"_x{round(minutes * 60 / STEP_S) - 1} {value}x{FOREVER}"


def buckets(name: str, instance: str, **labels: str) -> dict[str, str]:
    """A histogram whose values all lie below a tenth of a second."""
    return {
        named(name, instance, **labels, le=bound): moving(number)
        for bound, number in (("0.1", 10), ("6.5536", 10), ("26.2144", 10), ("+Inf", 10))
    }


def slow(name: str, instance: str, **labels: str) -> dict[str, str]:
    """The same, with one value in five in the highest bucket that has a bound."""
    return {
        named(name, instance, **labels, le=bound): moving(number)
        for bound, number in (("0.1", 8), ("6.5536", 8), ("26.2144", 10), ("+Inf", 10))
    }


def pump(instance: str) -> dict[str, str]:
    gauges = {
        "up": 1,
        "process_start_time_seconds": 1000,
        "binlog_pump_writer_failed_count": 0,
        "binlog_pump_sorter_oldest_open_seconds": 0,
        "binlog_pump_resolver_unavailable_seconds": 0,
        "binlog_pump_sorter_late_commits_total": 0,
        "binlog_pump_retention_errors_total": 0,
        "binlog_common_door_failed_handshakes_total": 0,
        "binlog_common_config_last_reload_successful": 1,
    }
    return {
        **{named(name, instance): still(value) for name, value in gauges.items()},
        named("binlog_pump_storage_error_count", instance, type="write_binlog"): still(0),
        named("binlog_pump_storage_storage_size_bytes", instance, type="capacity"): still(200 * GIB),
        named("binlog_pump_storage_storage_size_bytes", instance, type="available"): still(100 * GIB),
        named("binlog_pump_storage_storage_size_bytes", instance, type="floor"): still(10 * GIB),
        named("binlog_pump_stage_lag_seconds", instance, stage="indexed"): still(0.1),
        named("binlog_pump_retention_drainer_left_seconds", instance, id="drainer-1"): still(500_000),
        named("binlog_pump_admission_refused_total", instance, reason="state"): still(3),
        **buckets("binlog_pump_rpc_duration_seconds_bucket", instance, method="WriteBinlog", label="succ"),
        **buckets("binlog_pump_storage_write_binlog_duration_time_bucket", instance, type="batch"),
    }


def drainer(instance: str) -> dict[str, str]:
    standby = instance == STANDBY
    gauges = {
        "up": 1,
        "process_start_time_seconds": 1000,
        "binlog_drainer_quarantine_tables": 0,
        "binlog_drainer_sink_held_count": 0,
        "binlog_drainer_lag_eta_seconds": 0,
        "binlog_drainer_downstream_went_back_total": 0,
        "binlog_drainer_control_paused_count": 0,
        "binlog_drainer_verify_wrong_rows": 0,
        "binlog_drainer_verify_failures_count": 0,
        "binlog_drainer_standby_waiting_count": int(standby),
        "binlog_drainer_standby_trouble_count": 0,
        "binlog_drainer_disorder_binlog_count": 0,
        "binlog_binlogfile_corruption_binlog_count": 0,
        "binlog_common_door_failed_handshakes_total": 0,
    }
    return {
        **{named(name, instance): still(value) for name, value in gauges.items()},
        named("binlog_drainer_checkpoint_tso", instance): still(0) if standby else moving(STEP_S * 1000, 1),
        named("binlog_drainer_error_count", instance, type="unmarshal_binlog"): still(0),
        **{
            named("binlog_drainer_lag_seconds", instance, stage=stage): still(0.2)
            for stage in ("write", "sort_wait", "pull", "queue", "apply")
        },
        **buckets("binlog_drainer_execute_duration_time_bucket", instance),
    }


def spark(name: str, value: float) -> dict[str, str]:
    """A series of a job."""
    return {named(f"binlog_spark_{name}", SPARK, command="stream", name="orders"): still(value)}


QUIET: Final = {
    **pump(PUMPS[0]),
    **pump(PUMPS[1]),
    **drainer(DRAINER),
    **drainer(STANDBY),
    **spark("job_exit_code", 0),
    **spark("stream_lag_seconds", 2),
}
ONE, TWO = PUMPS


@dataclass(frozen=True)
class Scenario:
    """`fires`: alert and who it names, all of them, after `minutes`; none of them after `not_yet`."""

    name: str
    changes: Mapping[str, str]
    fires: tuple[tuple[str, str], ...] = ()
    minutes: float = 10
    not_yet: float = 0
    job_wide: tuple[str, ...] = field(default=())

    def group(self) -> dict[str, Any]:
        """A test of promtool: which alerts fire, at both times."""

        def check(minutes: float, samples: list[dict[str, Any]]) -> dict[str, Any]:
            firing = 'count by (alertname, instance) (ALERTS{alertstate="firing"})'
            return {"expr": firing, "eval_time": f"{round(minutes * 60)}s", "exp_samples": samples}

        labels = [f'{{alertname="{alert}", instance="{who}"}}' for alert, who in self.fires]
        labels += [f'{{alertname="{alert}"}}' for alert in self.job_wide]
        tests = [check(self.minutes, [{"labels": one, "value": 1} for one in labels])]
        if self.not_yet:
            tests.append(check(self.not_yet, []))
        series = {**QUIET, **self.changes}
        steps = round(self.minutes * 60 / STEP_S) + 1
        return {
            "name": self.name,
            "interval": f"{STEP_S}s",
            "input_series": [
                {"series": name, "values": values.replace(f"x{FOREVER}", f"x{steps}")}
                for name, values in series.items()
            ],
            "promql_expr_test": tests,
        }


def sized(values: str, floor: str = still(10 * GIB)) -> dict[str, str]:
    return {
        named("binlog_pump_storage_storage_size_bytes", ONE, type="available"): values,
        named("binlog_pump_storage_storage_size_bytes", ONE, type="floor"): floor,
    }


def refused(reason: str) -> str:
    return named("binlog_pump_admission_refused_total", ONE, reason=reason)


def gone(instance: str, after: float) -> dict[str, str]:
    """A node that Prometheus reaches no more: all it said ends, and `up` says so."""
    cut = round(after * 60 / STEP_S)
    found = {
        name: f"{values.rpartition('x')[0]}x{cut} stale" for name, values in QUIET.items() if instance in name
    }
    return {**found, named("up", instance): then((1, after), (0, REST))}


def taken_over() -> dict[str, str]:
    """The active drainer dies after ten minutes, and its standby goes on."""
    return {
        **gone(DRAINER, 10),
        named("binlog_drainer_standby_waiting_count", STANDBY): then((1, 10), (0, REST)),
        named("binlog_drainer_checkpoint_tso", STANDBY): f"0x39 600001+{STEP_S * 1000}x{FOREVER}",
    }


SCENARIOS: Final = (
    Scenario("all is well", {}, minutes=30, not_yet=1),
    # pumps
    Scenario(
        "a write to the log fails",
        {named("binlog_pump_storage_error_count", ONE, type="write_binlog"): then((0, 9.5), (4, REST))},
        (("BinlogPumpStorageError", ONE),),
        not_yet=9,
    ),
    Scenario(
        "clients wait for their writes",
        slow("binlog_pump_rpc_duration_seconds_bucket", ONE, method="WriteBinlog", label="succ"),
        (("BinlogPumpWriteRpcSlow", ONE),),
        not_yet=1,
    ),
    Scenario(
        "the disk is slow",
        slow("binlog_pump_storage_write_binlog_duration_time_bucket", TWO, type="batch"),
        (("BinlogPumpWriteSlow", TWO),),
        not_yet=1,
    ),
    Scenario("little space is left", sized(still(19 * GIB)), (("BinlogPumpSpaceLow", ONE),)),
    Scenario(
        "a pump that does not say its floor has little space",
        sized(still(19 * GIB), NOTHING),
        (("BinlogPumpSpaceLow", ONE),),
    ),
    Scenario(
        "a pump that refuses at no floor has little space",
        sized(still(19 * GIB), still(0)),
        (("BinlogPumpSpaceLow", ONE),),
    ),
    Scenario("a small volume with a small floor", sized(still(3 * GIB), still(GIB)), minutes=1),
    Scenario(
        "a small volume with little space",
        sized(still(1.5 * GIB), still(GIB)),
        (("BinlogPumpSpaceLow", ONE),),
    ),
    Scenario("space is used and given back", sized(then((100 * GIB, 30), (21 * GIB, REST))), minutes=30.5),
    Scenario(
        "the disk will be full within two hours",
        sized(f"{100 * GIB}-{100 * GIB // 480}x240"),
        (("BinlogPumpSpaceRunsOut", ONE),),
        minutes=40,
        not_yet=14,
    ),
    Scenario("a pump is dead", gone(TWO, 5), (("BinlogPumpDown", TWO),), not_yet=5.5),
    Scenario("a pump is started anew", {named("up", ONE): then((1, 5), (0, 0.5), (1, REST))}, not_yet=5.25),
    Scenario(
        "a sync failed",
        {
            named("binlog_pump_writer_failed_count", ONE): still(1),
            refused("writer"): f"0+2x{FOREVER}",
        },
        (("BinlogPumpWriterFailed", ONE), ("BinlogPumpRefusesWrites", ONE)),
    ),
    Scenario(
        "the first write is refused for want of space",
        {refused("disk"): then((0, 8), (1, REST))},
        (("BinlogPumpRefusesWrites", ONE),),
        not_yet=7,
    ),
    Scenario("writes are refused while a pump pauses", {refused("state"): moving(5)}),
    Scenario(
        "a transaction is open for long",
        {named("binlog_pump_sorter_oldest_open_seconds", ONE): moving(15)},
        (("BinlogPumpTransactionStuck", ONE),),
        not_yet=1,
    ),
    Scenario(
        "TiKV does not answer",
        {named("binlog_pump_resolver_unavailable_seconds", ONE): moving(15)},
        (("BinlogPumpUpstreamSilent", ONE),),
    ),
    Scenario(
        "the index lags",
        {named("binlog_pump_stage_lag_seconds", ONE, stage="indexed"): moving(15)},
        (("BinlogPumpIndexBehind", ONE),),
        not_yet=1.5,
    ),
    Scenario(
        "a commit came too late",
        {named("binlog_pump_sorter_late_commits_total", ONE): then((0, 9), (1, REST))},
        (("BinlogPumpLateCommit", ONE),),
        not_yet=8,
    ),
    Scenario(
        "retention comes near a drainer",
        {named("binlog_pump_retention_drainer_left_seconds", ONE, id="drainer-1"): f"15300-15x{FOREVER}"},
        (("BinlogPumpDrainerWouldLose", ONE),),
        minutes=20,
        not_yet=10,
    ),
    Scenario(
        "a drainer has lost binlogs",
        {named("binlog_pump_detected_drainer_binlog_purge_count", ONE, id="drainer-1"): born(5, 1)},
        (("BinlogPumpDrainerHasLost", ONE),),
        minutes=20,
        not_yet=4,
    ),
    Scenario(
        "old files cannot be removed",
        {named("binlog_pump_retention_errors_total", ONE): then((0, 9), (1, REST))},
        (("BinlogPumpPurgeFails", ONE),),
        not_yet=8,
    ),
    # drainers
    Scenario(
        "the checkpoint is old",
        {named("binlog_drainer_checkpoint_tso", DRAINER): moving(1000, 1)},
        (("BinlogDrainerCheckpointHighDelay", DRAINER),),
        minutes=66,
        not_yet=60,
    ),
    Scenario(
        "the downstream is slow",
        slow("binlog_drainer_execute_duration_time_bucket", DRAINER),
        (("BinlogDrainerExecuteSlow", DRAINER),),
        not_yet=1,
    ),
    Scenario(
        "the checkpoint stands",
        {named("binlog_drainer_checkpoint_tso", DRAINER): f"1+15000x20 300001x{FOREVER}"},
        (("BinlogDrainerCheckpointStands", DRAINER),),
        not_yet=5,
    ),
    Scenario(
        "a drainer is dead, and nothing takes over",
        {**gone(DRAINER, 5), named("binlog_drainer_standby_trouble_count", STANDBY): still(0)},
        (("BinlogDrainerDown", DRAINER),),
        not_yet=5.5,
    ),
    Scenario(
        "a DDL waits",
        {named("binlog_drainer_quarantine_tables", DRAINER): then((0, 5), (2, REST))},
        (("BinlogDrainerDdlWaits", DRAINER),),
        not_yet=5.5,
    ),
    Scenario(
        "a sink of one's own is held",
        {named("binlog_drainer_sink_held_count", DRAINER): then((0, 5), (1, REST))},
        (("BinlogDrainerSinkHeld", DRAINER),),
        not_yet=5.5,
    ),
    Scenario(
        "a drainer lags",
        {named("binlog_drainer_lag_seconds", DRAINER, stage="apply"): then((0.2, 5), (400, REST))},
        (("BinlogDrainerBehind", DRAINER),),
        minutes=12,
        not_yet=9.5,
    ),
    Scenario(
        "a drainer lags for a moment",
        {named("binlog_drainer_lag_seconds", DRAINER, stage="apply"): then((0.2, 5), (400, 3), (0.2, REST))},
    ),
    Scenario(
        "the lag does not shrink",
        {
            named("binlog_drainer_lag_seconds", DRAINER, stage="apply"): moving(4),
            named(
                "binlog_drainer_lag_eta_seconds", DRAINER
            ): f"1e308+1e308x{FOREVER}",  # infinite from its second step on
        },
        (("BinlogDrainerNeverCatchesUp", DRAINER),),
        minutes=15,
        not_yet=9,
    ),
    Scenario(
        "a pump promises nothing",
        {named("binlog_drainer_lag_seconds", DRAINER, stage="sort_wait"): then((0, 5), (90, REST))},
        (("BinlogDrainerSortWait", DRAINER),),
        not_yet=5.5,
    ),
    Scenario(
        "the downstream went back",
        {named("binlog_drainer_downstream_went_back_total", DRAINER): then((0, 9), (1, REST))},
        (("BinlogDrainerDownstreamWentBack", DRAINER),),
        not_yet=8,
    ),
    Scenario(
        "an operator paused a drainer",
        {
            named("binlog_drainer_control_paused_count", DRAINER): still(1),
            named("binlog_drainer_checkpoint_tso", DRAINER): f"1+15000x4 60001x{FOREVER}",
        },
        (("BinlogDrainerPaused", DRAINER), ("BinlogDrainerCheckpointStands", DRAINER)),
        minutes=16,
    ),
    Scenario(
        "the downstream is read-only",
        {named("binlog_drainer_lane_retries_total", DRAINER, reason="server is read-only"): moving(15)},
        (("BinlogDrainerDownstreamRetries", DRAINER),),
        not_yet=4,
    ),
    Scenario(
        "lanes meet in locks",
        {named("binlog_drainer_lane_retries_total", DRAINER, reason="deadlock or lock wait"): moving(15)},
    ),
    Scenario(
        "another program changed rows, for the first time",
        {named("binlog_drainer_drift_rows_total", DRAINER, table="shop.t"): born(8, 1)},
        (("BinlogDrainerDrift", DRAINER),),
        not_yet=7,
    ),
    Scenario(
        "another program changes rows again and again",
        {named("binlog_drainer_drift_rows_total", DRAINER, table="shop.t"): moving(1)},
        (("BinlogDrainerDrift", DRAINER),),
        minutes=20,
    ),
    Scenario(
        "texts have no place in their column, again and again",
        {named("binlog_drainer_drift_text_values_total", DRAINER, table="shop.t", column="c"): moving(1)},
        (("BinlogDrainerTextLost", DRAINER),),
        minutes=20,
    ),
    Scenario(
        "a peer opens too many connections all the time",
        {named("binlog_common_door_refused_total", ONE, limit="connections"): moving(1)},
        (("BinlogNodeLimitsReached", ONE),),
    ),
    Scenario(
        "rows were changed, before all this began",
        {named("binlog_drainer_drift_rows_total", DRAINER, table="shop.t"): still(7)},
        minutes=20,
    ),
    Scenario(
        "a text has no place in its column",
        {named("binlog_drainer_drift_text_values_total", DRAINER, table="shop.t", column="c"): born(8, 1)},
        (("BinlogDrainerTextLost", DRAINER),),
        not_yet=7,
    ),
    Scenario(
        "verify differs",
        {named("binlog_drainer_verify_wrong_rows", DRAINER): then((0, 9), (3, REST))},
        (("BinlogDrainerDownstreamDiffers", DRAINER),),
        not_yet=8,
    ),
    Scenario(
        "verify cannot compare",
        {named("binlog_drainer_verify_failures_count", DRAINER): then((2, 9), (3, REST))},
        (("BinlogDrainerNotVerified", DRAINER),),
        not_yet=8,
    ),
    Scenario(
        "a standby cannot log in",
        {named("binlog_drainer_standby_trouble_count", STANDBY): then((0, 5), (1, REST))},
        (("BinlogDrainerStandbyCannot", STANDBY),),
        not_yet=5.5,
    ),
    Scenario(
        "a standby took over, and none is left behind it",
        taken_over(),
        (("BinlogDrainerDown", DRAINER),),
        minutes=20,
        not_yet=10.5,
        job_wide=("BinlogDrainerStandbyLost",),
    ),
    Scenario(
        "a standby is dead",
        gone(STANDBY, 5),
        (("BinlogDrainerDown", STANDBY),),
        minutes=15,
        not_yet=5.5,
        job_wide=("BinlogDrainerStandbyLost",),
    ),
    Scenario(
        "a pump sends what is no binlog",
        {named("binlog_drainer_error_count", DRAINER, type="unmarshal_binlog"): then((0, 9), (1, REST))},
        (("BinlogDrainerUndecodable", DRAINER),),
        not_yet=8,
    ),
    Scenario(
        "a pump breaks its order",
        {named("binlog_drainer_disorder_binlog_count", DRAINER): then((0, 9), (1, REST))},
        (("BinlogDrainerDisorder", DRAINER),),
        not_yet=8,
    ),
    Scenario(
        "the relay log is damaged",
        {named("binlog_binlogfile_corruption_binlog_count", DRAINER): then((0, 9), (2, REST))},
        (("BinlogDrainerRelayDamaged", DRAINER),),
        not_yet=8,
    ),
    # both
    Scenario(
        "a node is started again and again",
        {named("process_start_time_seconds", DRAINER): moving(15)},
        (("BinlogNodeRestarts", DRAINER),),
    ),
    Scenario(
        "a node is upgraded, and started twice",
        {named("process_start_time_seconds", DRAINER): then((1000, 3), (1200, 2), (1300, REST))},
    ),
    Scenario(
        "a node did not take its file",
        {named("binlog_common_config_last_reload_successful", TWO): then((1, 8), (0, REST))},
        (("BinlogNodeReloadFailed", TWO),),
        not_yet=7,
    ),
    Scenario(
        "a receiver of events refuses them",
        {
            named("binlog_common_notify_events_total", ONE, result="sent"): moving(1),
            named("binlog_common_notify_events_total", ONE, result="refused"): then((0, 8), (2, REST)),
        },
        (("BinlogNodeEventsLost", ONE),),
        not_yet=7,
    ),
    Scenario("an audit has findings", spark("job_exit_code", 18), (("BinlogSparkJobFailed", SPARK),)),
    Scenario(
        "a stream lags",
        spark("stream_lag_seconds", 400),
        (("BinlogSparkStreamBehind", SPARK),),
        not_yet=4,
    ),
    Scenario(
        "a peer comes with an expired certificate",
        {named("binlog_common_door_failed_handshakes_total", ONE): moving(5)},
        (("BinlogNodeHandshakesFail", ONE),),
        not_yet=4,
    ),
    Scenario(
        "a peer opens too many connections",
        {named("binlog_common_door_refused_total", ONE, limit="connections"): born(8, 1)},
        (("BinlogNodeLimitsReached", ONE),),
        not_yet=7,
    ),
)


def test_every_alert_has_a_scenario() -> None:
    provoked = {alert for one in SCENARIOS for alert, _ in one.fires}
    provoked |= {alert for one in SCENARIOS for alert in one.job_wide}
    assert provoked == set(alerts())


def test_names_of_scenarios_are_their_own() -> None:
    names = [one.name for one in SCENARIOS]
    assert len(names) == len(set(names))


def test_each_alert_fires_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    tests = tmp_path / "tests.yml"  # JSON is YAML
    document = {
        "rule_files": [str(path) for path in RULE_FILES],
        "evaluation_interval": f"{2 * STEP_S}s",
        "group_eval_order": ["binlog-recording"],
        "tests": [one.group() for one in SCENARIOS],
    }
    tests.write_text(json.dumps(document))
    found = promtool("test", "rules", str(tests))
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_wrong_expectation_is_found(tmp_path: Path) -> None:
    """What the test above rests on."""
    wrong = Scenario("a DDL waits, said to be quiet", dict(SCENARIOS[0].changes), (("BinlogPumpDown", ONE),))
    tests = tmp_path / "tests.yml"
    tests.write_text(json.dumps({"rule_files": [str(one) for one in RULE_FILES], "tests": [wrong.group()]}))
    found: subprocess.CompletedProcess[str] = promtool("test", "rules", str(tests))
    assert found.returncode != 0
