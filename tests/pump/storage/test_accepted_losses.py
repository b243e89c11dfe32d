"""Damage that was given up, through lives: told once, passed by each start and each puller, never forgotten.

Also what a commit without its prewrite means: a damaged index, a loss, or another pump's transaction.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from pump.index.index import key_of
from pump.index.store import IndexDamaged
from pump.log.delivery import Delivery
from pump.log.record import ValuePointer
from pump.storage import accepted_losses
from pump.storage.accepted_losses import AcceptedLosses
from pump.storage.data_dir import DataDir
from pump.storage.opening import StorageLimits
from tests.pump.support.payloads import alter, opened, pull, put, put_pair, wait_watermark
from tidb_binlog import binlog, checked
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.observe import metrics

pytestmark = pytest.mark.usefixtures("each_index")
LIMITS = StorageLimits(segment_bytes_max=5000)


async def stored(path: Path, value: bytes = bytes(300)) -> list[Delivery]:
    async with opened(path, limits=LIMITS) as storage:
        return [Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, value)) for ts in range(10, 600, 10)]


async def place_of(path: Path, ts: int) -> ValuePointer:
    async with opened(path, limits=LIMITS) as storage:
        place = storage.index.pointer(ts)
        assert place is not None
        return place


def noted(path: Path) -> list[str]:
    return checked.read_text((path / ".losses").read_text()).split()


def flip(path: Path, place: ValuePointer, at: int = 30) -> None:
    file = path / "value" / f"{place.fid:06d}.vlog"
    data = bytearray(file.read_bytes())
    data[place.offset + at] ^= 1
    file.write_bytes(data)


def passed_over() -> float:
    return metrics.REGISTRY.get_sample_value("binlog_pump_accepted_losses_total") or 0.0


async def way_on(path: Path) -> str:
    """What the error that a puller gets tells to type."""
    async with opened(path, limits=LIMITS) as storage:
        with pytest.raises(Corruption) as caught:
            await pull(storage, from_disk=True)
    return caught.value.hint.rpartition("--accept-loss ")[2].strip("`")


async def served(path: Path, accept_loss: str = "") -> list[Delivery]:
    async with opened(path, limits=LIMITS, accept_loss=accept_loss) as storage:
        found = await pull(storage, from_disk=True)
        assert await pull(storage) == found
        return found


@pytest.mark.parametrize("damaged", ["prewrite", "commit"])
@pytest.mark.parametrize("at", [1, 6, 17, 30], ids=["magic", "length", "type", "body"])
@pytest.mark.parametrize("index_is_lost", [False, True])
async def test_a_damaged_record_is_told_given_up_and_never_asked_about_again(
    damaged: str, at: int, index_is_lost: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = await stored(tmp_path)
    flip(tmp_path, await place_of(tmp_path, 200 if damaged == "prewrite" else 201), at)
    lost = await way_on(tmp_path)
    if index_is_lost:
        shutil.rmtree(tmp_path / "kv")
        with pytest.raises(Corruption, match=f"--accept-loss {lost}"):
            await served(tmp_path)
    others = [one for one in expected if one.commit_ts != 201]
    before = passed_over()
    with caplog.at_level(logging.ERROR):
        if damaged == "commit" and index_is_lost:
            # Its prewrite is open: what came of it is the upstream's to say, and nothing is lost.
            async with opened(tmp_path, limits=LIMITS, accept_loss=lost) as storage:
                assert [one.start_ts for one in storage.open_prewrites()] == [200]
                await put(storage, binlog.commit(200, 201, b"key"))
                await wait_watermark(storage, 591)
            assert await served(tmp_path) == expected
            return
        assert await served(tmp_path, lost) == others
    told = [record for record in caplog.records if "not delivered" in record.getMessage()]
    assert told
    assert passed_over() > before
    # From now on without the option: a start, a start without an index, another puller.
    assert await served(tmp_path) == others
    shutil.rmtree(tmp_path / "kv")
    if damaged == "prewrite":
        assert await served(tmp_path) == others


async def test_what_is_told_of_a_lost_transaction(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await stored(tmp_path)
    place = await place_of(tmp_path, 200)
    flip(tmp_path, place)
    lost = await way_on(tmp_path)
    with caplog.at_level(logging.ERROR):
        await served(tmp_path, lost)
    (told,) = [record for record in caplog.records if "not delivered" in record.getMessage()]
    assert lost == f"{place.fid:06d}.vlog:{place.offset}"
    fields = {
        name: value
        for fields in vars(told).values()
        if isinstance(fields, dict)
        for name, value in fields.items()
    }
    assert {"commit_ts": 201, "start_ts": 200, "lost_at": lost}.items() <= fields.items()


async def test_a_large_transaction_that_is_damaged_can_be_given_up(tmp_path: Path) -> None:
    """Sent in parts, its checksum is known at the end only."""
    expected = await stored(tmp_path)
    async with opened(tmp_path, limits=LIMITS) as storage:
        await put_pair(storage, 1000, 1001, bytes(300_000))
        await put_pair(storage, 2000, 2001)
    flip(tmp_path, await place_of(tmp_path, 1000), 250_000)
    lost = await way_on(tmp_path)
    async with opened(tmp_path, limits=LIMITS, accept_loss=lost) as storage:
        page = storage.history().page(591, storage.watermark, bytes_max=1 << 20, parts_above=1000)
        assert page.large is None
        assert [one.commit_ts for one in page.deliveries] == [2001]
        assert len(await pull(storage, from_disk=True)) == len(expected) + 1


async def test_what_was_cut_off_is_missed_later_and_its_place_is_used_again(tmp_path: Path) -> None:
    """The newest file is damaged in front of the last record that the index knows: all from there on goes."""
    expected = await stored(tmp_path)
    async with opened(tmp_path, limits=LIMITS) as storage:
        await put(storage, binlog.prewrite(1000, b"key", bytes(300)), binlog.prewrite(1010, b"key", b"v"))
        for ts in (1000, 1010):
            await put(storage, binlog.fake(ts + 1))
    place, known = await place_of(tmp_path, 1000), await place_of(tmp_path, 1011)
    newest = tmp_path / "value" / f"{place.fid:06d}.vlog"
    newest.write_bytes(newest.read_bytes()[: place.offset] + bytes(newest.stat().st_size - place.offset))
    asked: list[str] = []
    for lost in (f"{newest.name}:{known.offset}", f"{newest.name}:{place.offset}"):
        with pytest.raises(Corruption) as caught:
            await served(tmp_path, *asked[-1:])
        asked.append(caught.value.hint.rpartition("--accept-loss ")[2].strip("`"))
        assert asked[-1] == lost
    async with opened(tmp_path, limits=LIMITS, accept_loss=lost) as storage:
        assert storage.value_log.end == place
        # An end that was on its way comes, and a transaction takes the place.
        await put(storage, binlog.commit(1000, 1020, b"key"))
        expected.append(Delivery(1031, 1030, await put_pair(storage, 1030, 1031)))
        await wait_watermark(storage, 1031)
    assert await served(tmp_path) == expected
    assert await served(tmp_path) == expected
    # What is damaged there now is another damage.
    flip(tmp_path, await place_of(tmp_path, 1020), 20)
    assert await way_on(tmp_path) == lost


async def test_a_loss_is_forgotten_with_its_file(tmp_path: Path) -> None:
    await stored(tmp_path)
    place = await place_of(tmp_path, 200)
    flip(tmp_path, place)
    await served(tmp_path, await way_on(tmp_path))
    assert noted(tmp_path) == [f"{place.fid:06d}.vlog:{place.offset}"]
    async with opened(tmp_path, limits=LIMITS) as storage:
        storage.purged_to(400, place.fid + 1)
        storage.value_log.remove(place.fid)
    async with opened(tmp_path, limits=LIMITS):
        assert noted(tmp_path) == []


def test_a_note_that_nobody_can_read_is_told(tmp_path: Path) -> None:
    from pump.storage.accepted_losses import AcceptedLosses

    data_dir = DataDir(str(tmp_path))
    for note in ("here and there\n", "000001.vlog:\u00b2\n", f"000001.vlog:{'1' * 5000}\n"):
        (tmp_path / ".losses").write_text(note)
        with pytest.raises(ConfigError, match="is no FILE:OFFSET"):
            AcceptedLosses(data_dir)
    data_dir.close()


# -- a commit without its prewrite ---------------------------------------------------------------------


async def test_a_prewrite_that_the_log_has_and_the_index_has_not_lets_the_index_be_built_anew(
    tmp_path: Path,
) -> None:
    expected = await stored(tmp_path)
    async with opened(tmp_path, limits=LIMITS) as storage:
        alter(storage.index, {key_of(200): None})
    with pytest.raises(
        IndexDamaged, match="does not know the prewrite 200 of commit 201, which stands at 0000"
    ):
        await served_by_puller(tmp_path)
    assert await served_by_puller(tmp_path) == expected
    assert (tmp_path / "kv.damaged-1").is_dir()


async def served_by_puller(path: Path) -> list[Delivery]:
    async with opened(path, limits=LIMITS) as storage:
        return await pull(storage)


async def test_an_entry_that_leads_elsewhere_lets_the_index_be_built_anew(tmp_path: Path) -> None:
    expected = await stored(tmp_path)
    async with opened(tmp_path, limits=LIMITS) as storage:
        alter(storage.index, {key_of(201): storage.index.store.get(key_of(301))})
    with pytest.raises(IndexDamaged, match="leads from 201 to a record of commit_ts 301"):
        await served_by_puller(tmp_path)
    assert await served_by_puller(tmp_path) == expected


async def test_a_commit_of_another_pump_can_be_given_up_alone(tmp_path: Path) -> None:
    expected = await stored(tmp_path)
    async with opened(tmp_path, limits=LIMITS) as storage:
        await put(storage, binlog.commit(995, 1000, b"key"), binlog.commit(996, 1001, b"key"))
        place = storage.value_log.end
        expected.append(Delivery(1011, 1010, await put_pair(storage, 1010, 1011)))
    first = await way_on(tmp_path)
    assert first.startswith(f"{place.fid:06d}.vlog:")
    async with opened(tmp_path, limits=LIMITS, accept_loss=first) as storage:
        with pytest.raises(Corruption, match="commit 1001 has no prewrite 996") as caught:
            await pull(storage, from_disk=True)
    second = caught.value.hint.rpartition("--accept-loss ")[2].strip("`")
    assert await served(tmp_path, second) == expected
    assert await served(tmp_path) == expected


async def test_a_loss_says_nothing_of_younger_transactions(tmp_path: Path) -> None:
    """The file that lost something was closed before this prewrite can have been written."""
    await stored(tmp_path)
    flip(tmp_path, await place_of(tmp_path, 20))
    lost = await way_on(tmp_path)
    async with opened(tmp_path, limits=LIMITS, accept_loss=lost) as storage:
        await put(storage, binlog.commit(995, 1000, b"key"))
        await wait_watermark(storage, 1000)
        with pytest.raises(Corruption, match="commit 1000 has no prewrite 995"):
            await pull(storage, from_disk=True)


async def test_the_log_is_searched_once_for_a_prewrite_that_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(tmp_path)
    async with opened(tmp_path, limits=LIMITS) as storage:
        await put(storage, binlog.commit(995, 1000, b"key"))
        await wait_watermark(storage, 1000)
        for history in (storage.history(), storage.history()):
            with pytest.raises(Corruption, match="commit 1000 has no prewrite 995"):
                history.page(999, 1000, bytes_max=1000)
            monkeypatch.setattr(storage.value_log, "record_batches", None)


async def test_a_commit_at_the_start_ts_of_another_hides_neither(tmp_path: Path) -> None:
    """Clients that take no timestamps of the oracle."""
    expected = await stored(tmp_path)
    async with opened(tmp_path, limits=LIMITS) as storage:
        await put(storage, binlog.prewrite(1000, b"key", b"value"), binlog.prewrite(990, b"key", b"value"))
        await put(storage, binlog.commit(990, 1000, b"key"), binlog.commit(1000, 1010, b"key"))
        await wait_watermark(storage, 1010)
    found = await served(tmp_path)
    assert found[: len(expected)] == expected
    assert [one.commit_ts for one in found[len(expected) :]] == [1000, 1010]


async def test_one_start_gives_up_all_that_a_lost_directory_leaves_behind(tmp_path: Path) -> None:
    """Commits whose prewrites went with it, over several files, and damage between them: what is whole comes,
    also later, and what is missed after the range is asked about again."""
    async with opened(tmp_path, limits=LIMITS) as storage:
        whole = []
        for ts in range(1000, 3000, 20):
            await put(storage, binlog.commit(ts, ts + 1, bytes(100)))
            whole.append(Delivery(ts + 11, ts + 10, await put_pair(storage, ts + 10, ts + 11, bytes(300))))
        await wait_watermark(storage, whole[-1].commit_ts)
        assert storage.value_log.end.fid > 3
    flip(tmp_path, await place_of(tmp_path, 2010))
    async with opened(tmp_path, limits=LIMITS) as storage:
        with pytest.raises(Corruption) as caught:
            await pull(storage, from_disk=True)
    given = caught.value.hint.split("--accept-loss ")[1].partition("`")[0]
    assert "-" in given
    lost = [one for one in whole if one.commit_ts == 2011]
    before = passed_over()
    expected = [one for one in whole if one not in lost]
    assert await served(tmp_path, given) == expected
    assert passed_over() - before >= 101
    assert await served(tmp_path) == expected
    shutil.rmtree(tmp_path / "kv")
    assert await served(tmp_path) == expected
    async with opened(tmp_path, limits=LIMITS) as storage:
        await put(storage, binlog.commit(3100, 3101, b"key"))
        await wait_watermark(storage, 3101)
        with pytest.raises(Corruption, match="commit 3101 has no prewrite 3100"):
            await pull(storage, from_disk=True)
    DataDir(str(tmp_path)).close()


def test_of_three_times_as_many_damages_as_are_noted_all_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted_losses, "_NOTED_MAX", 10)
    data_dir = DataDir(str(tmp_path))
    losses = AcceptedLosses(data_dir, "000002.vlog:0-000003.vlog:0")
    for _ in range(2):
        assert all(losses.accepted("000002.vlog", at) for at in range(30))
        assert len(losses.before(ValuePointer(9, 0))[0]) == 10
        losses = AcceptedLosses(data_dir)
    data_dir.close()


def test_a_range_goes_with_its_last_file(tmp_path: Path) -> None:
    data_dir = DataDir(str(tmp_path))
    losses = AcceptedLosses(data_dir, "000002.vlog:10-000004.vlog:50")
    inside = [ValuePointer(2, 10), ValuePointer(3, 0), ValuePointer(4, 49)]
    outside = [ValuePointer(2, 9), ValuePointer(4, 50), ValuePointer(1, 99)]
    assert [*map(losses.has, inside + outside)] == [True] * 3 + [False] * 3
    assert losses.before(ValuePointer(9, 0)) == ([], [])
    assert losses.accepted("000003.vlog", 7)
    assert not losses.accepted("000005.vlog", 7)
    assert losses.before(ValuePointer(9, 0)) == ([ValuePointer(3, 7)], [])
    again = AcceptedLosses(data_dir)
    assert [*map(again.has, inside + outside)] == [True] * 3 + [False] * 3
    again.forget_before(4)
    assert again.has(ValuePointer(4, 49))
    again.forget_before(5)
    assert not any(map(AcceptedLosses(data_dir).has, inside))
    with pytest.raises(ConfigError, match="is no FILE:OFFSET"):
        AcceptedLosses(data_dir, "000002.vlog:10-000004")
    data_dir.close()
