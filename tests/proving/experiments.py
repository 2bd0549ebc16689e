"""The twelve experiments and the seven promises: what is done, what must hold, and which tests do it.

Decides: which attack belongs to which experiment, and which experiment to which promise. Never: runs one, or
says how it went; ``tests/proving/prove.py`` does, and writes down what it saw.
Follows: an attack is a test by its path and name, all its parameters included; a test that is not there fails
``tests/proving/test_page.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Attack = str
"""``folder/file.py::test`` below tests/."""


@dataclass(frozen=True)
class Experiment:
    """One experiment. ``inject`` and ``holds`` complete the sentences of the page."""

    number: int
    title: str
    inject: str
    holds: str
    attacks: tuple[Attack, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Promise:
    """One promise, and the experiments and attacks that try to break it."""

    number: int
    text: str
    experiments: tuple[int, ...]
    attack: Attack


EXPERIMENTS = (
    Experiment(
        1,
        "Killed while it buys",
        "the daemon dies after every commit and every outside effect of a purchase, then by `kill -9` at"
        " random moments",
        "each node that is wanted has one machine, and no machine runs that no row knows",
        (
            "flows/test_stories.py::test_dying_at_every_step_changes_nothing",
            "flows/test_stories.py::test_dying_twice_in_a_row_changes_nothing",
            "flows/test_histories.py::test_histories_end_well",
            "proving/test_killed_buying.py::test_killed_while_it_buys_each_node_has_one_machine",
            (
                "requests/test_survival.py"
                "::test_ten_launches_twenty_execs_and_a_followed_log_survive_a_server_that_is_killed"
            ),
            "providers/test_local.py::test_a_launch_that_died_halfway_is_finished_by_the_next",
        ),
        {"SKY_SEEDS": "100"},
    ),
    Experiment(
        2,
        "A provider that misbehaves",
        "a machine is made and the answer is lost; the list is thirty seconds late; an end is refused for"
        " an hour; machines vanish behind our back",
        "nothing is bought twice, every machine is listed until its provider says that it is gone, and a"
        " loss is noticed",
        (
            "flows/test_buying.py::test_a_lost_answer_buys_one_machine",
            "flows/test_buying.py::test_a_terminate_that_fails_for_an_hour_keeps_trying_and_says_so",
            "flows/test_buying.py::test_a_purchase_whose_answer_was_lost_is_given_back_too",
            "flows/test_buying.py::test_machines_that_no_row_owns_are_ended",
            "flows/test_buying.py::test_a_cloud_in_trouble_with_everything_costs_time_and_nothing_else",
            "flows/test_stories.py::test_slow_machines_and_listings_change_nothing",
            "flows/test_losses.py::test_a_machine_deleted_behind_our_back_is_noticed_and_replaced",
            "reconcile/test_passes_at_once.py::test_providers_that_hang_keep_no_decision_waiting",
        ),
    ),
    Experiment(
        3,
        "A database that is held, full, or copied",
        "another process holds the database for longer than it is waited for; the disk has no byte left;"
        " the files are copied in full work",
        "reads go on, what runs is left alone, what was refused is not there, no restart is needed, and the"
        " copy opens clean with books that add up",
        (
            "system/test_faults.py::test_a_database_that_another_process_holds_is_waited_for",
            "system/test_faults.py::test_a_full_disk_stops_no_read_and_needs_no_restart",
            "system/test_faults.py::test_files_copied_in_full_work_are_a_deployment",
            "store/test_db.py::test_a_database_locked_by_another_process_is_waited_for_and_then_busy",
            "store/test_db.py::test_a_full_disk_is_told_writes_nothing_and_is_recovered_from",
            "store/test_db.py::test_on_a_full_disk_what_is_under_way_is_ended_and_nothing_begins",
            "store/test_db.py::test_what_was_answered_survives_a_kill",
            "store/test_blobs.py::test_a_full_disk_is_told_and_recovered_from",
            "agent/test_full_disk.py::test_words_for_which_there_is_no_room_end_nothing",
        ),
    ),
    Experiment(
        4,
        "A clock that somebody sets",
        "the wall clock steps two hours forth and back, while the daemon runs and while it is away, and"
        " stands still",
        "leases, the order of events and bills do not care",
        (
            "flows/test_clock.py::test_a_step_while_the_daemon_runs_changes_nothing",
            "flows/test_clock.py::test_a_step_while_the_daemon_is_away_loses_no_machine",
            "flows/test_clock.py::test_what_is_due_later_is_not_held_up_by_a_clock_that_was_set_back",
            "flows/test_clock.py::test_a_clock_that_stands_still_for_a_moment_keeps_the_order",
            "flows/test_jobs.py::test_a_clock_that_is_set_while_a_job_runs_changes_no_bill",
            "providers/test_local.py::test_a_clock_set_back_does_not_make_the_grace_longer",
        ),
    ),
    Experiment(
        5,
        "One key, many requests",
        "fifty requests under one key at once; an answer that is dropped, and asked for again from another"
        " program",
        "one effect, and the first answer again",
        (
            "jobs/test_jobs.py::test_one_key_fifty_times_at_once_is_one_job",
            "api/test_writes.py::test_twenty_at_once_under_one_key_have_one_effect",
            "store/test_tx.py::test_one_key_used_by_several_daemons_at_once_is_one_effect",
            (
                "client/test_sdk_endpoints.py"
                "::test_a_submission_whose_answer_was_lost_is_sent_again_under_its_key"
            ),
            "jobs/test_sdk.py::test_a_submit_whose_answer_is_lost_is_one_job",
            "jobs/test_sdk.py::test_a_key_makes_a_submit_the_same_from_another_program",
        ),
    ),
    Experiment(
        6,
        "Agents that repeat, fall silent and die",
        "reports come twice, in another order and late; a node is cut off for a while, for ten minutes and"
        " for ever while work runs; workers and agents are killed, by the kernel's memory limit too",
        "each call has one outcome; work that was cut off goes on; what nobody can know is `indeterminate`"
        " and says so",
        (
            "flows/test_losses.py::test_reports_said_twice_and_in_another_order_count_once",
            "flows/test_losses.py::test_a_late_report_is_kept_and_moves_nothing",
            "flows/test_losses.py::test_an_unreachable_agent_on_a_machine_that_is_there_ends_nothing",
            "flows/test_losses.py::test_silence_beyond_the_lease_is_a_loss_and_the_agent_has_ended_itself",
            "system/test_outcomes.py::test_a_node_that_is_silent_for_a_while_goes_on",
            "system/test_outcomes.py::test_a_node_that_hears_of_no_daemon_ends_itself_and_what_it_runs",
            "providers/test_ssh_daemon.py::test_work_goes_on_while_the_network_is_cut",
            "system/test_survival.py::test_five_hundred_calls_survive_ten_kills",
            "system/test_survival.py::test_a_killed_agent_makes_its_call_indeterminate_and_is_replaced",
            "system/test_rulings.py::test_a_call_that_the_kernel_ends_for_its_memory_says_so",
            "agent/test_durability.py::test_a_new_agent_tells_what_the_killed_one_could_not",
            (
                "agent/test_durability.py"
                "::test_an_agent_that_is_killed_again_and_again_loses_and_repeats_nothing"
            ),
        ),
    ),
    Experiment(
        7,
        "Readers of the stream",
        "a reader that never reads, a thousand readers, cursors that are old, from the future, or garbage",
        "nobody else waits, nobody misses an event, and a cursor that cannot be served is refused with the"
        " place to go on at",
        (
            "proving/long.py::test_a_thousand_readers_are_told_everything",
            "api/test_events.py::test_a_reader_that_never_reads_holds_nobody_up",
            "api/test_events.py::test_nothing_is_missing_while_a_thousand_events_are_written",
            "api/test_events.py::test_what_is_no_longer_kept_is_refused_and_told_where_to_go_on",
            "api/test_refusals.py::test_a_wrong_last_event_id_is_refused",
            "api/test_many_readers.py::test_readers_of_a_long_log_keep_nobody_waiting",
            "store/test_events.py::test_who_reads_more_slowly_than_events_are_dropped_skips_none",
        ),
    ),
    Experiment(
        8,
        "Hostile content",
        "bombs, uploads that are huge or cut short, wrong hashes, paths that lead elsewhere, NUL, links,"
        " three hundred levels",
        "it is refused by name, memory stays flat, and nothing of it is kept",
        (
            "client/test_pack.py::test_a_bomb_is_not_unpacked",
            "agent/test_included.py::test_what_unpacks_to_too_much_is_refused",
            "agent/test_included.py::test_nothing_is_unpacked_elsewhere",
            "agent/test_sessions.py::test_paths_that_will_not_do_are_refused",
            "api/test_content.py::test_content_under_a_wrong_name_is_not_stored",
            "api/test_content.py::test_large_content_never_sits_in_memory",
            "api/test_refusals.py::test_a_body_over_its_limit_is_refused",
            "store/test_blobs.py::test_an_upload_that_breaks_off_leaves_nothing",
            "store/test_db.py::test_text_with_a_nul_is_kept_or_not_found_and_breaks_nothing",
            "server/test_heads.py::test_a_head_without_end_is_refused_and_not_kept",
        ),
    ),
    Experiment(
        9,
        "Two hundred jobs on money for fifty",
        "two hundred paid jobs are submitted at once on a balance for fifty; settlements die half-way and"
        " are made twice; a key is revoked while its stream is read",
        "exactly fifty are taken, each hold is resolved once, the books add up, and the stream ends within"
        " thirty seconds",
        (
            "jobs/test_jobs.py::test_two_hundred_submits_at_once_on_a_balance_for_fifty",
            "flows/test_jobs.py::test_dying_anywhere_changes_nothing",
            "flows/test_console_jobs.py::test_dying_anywhere_loses_no_hold_and_no_settlement",
            "proving/long.py::test_a_stream_ends_when_its_key_is_revoked",
            "requests/test_users.py::test_what_is_being_told_ends_with_its_token",
        ),
    ),
    Experiment(
        10,
        "Webhooks",
        "targets that are slow, that answer 500, 410, a redirect into the private network or without end,"
        " and names that change their address",
        "no private address is connected to, nobody else waits, and each event arrives once",
        (
            "jobs/test_webhooks.py::test_a_receiver_that_fails_gets_it_again_under_the_same_id",
            "jobs/test_webhooks.py::test_410_ends_it_and_it_can_be_begun_again_by_hand",
            "jobs/test_webhooks.py::test_a_redirect_is_not_followed_and_a_huge_answer_not_read",
            "jobs/test_webhooks.py::test_a_name_that_leads_to_a_private_address_is_never_connected_to",
            "jobs/test_webhooks.py::test_many_endpoints_that_hang_keep_no_other_customer_waiting",
            "reconcile/test_sender.py::test_a_name_with_one_private_address_among_public_ones_is_refused",
            "reconcile/test_sender.py::test_the_status_is_the_answer_although_its_body_never_ends",
        ),
    ),
    Experiment(
        11,
        "Told to end in full work",
        "SIGTERM while payments, launches and calls are asked for without pause; another release on the"
        " database that the last one left",
        "what was answered is there, what was not can be asked again and is there once, and the next"
        " release opens the database",
        (
            "system/test_faults.py::test_told_to_end_in_full_work_it_loses_and_doubles_nothing",
            (
                "requests/test_survival.py"
                "::test_what_a_server_that_is_told_to_end_has_taken_goes_on_with_the_next_one"
            ),
            "server/test_ending.py::test_whoever_waits_is_let_go_at_once_and_told_to_come_back",
            (
                "requests/test_upgrade.py"
                "::test_requests_of_the_release_before_answer_and_what_was_under_way_comes_to_its_end"
            ),
            (
                "store/test_migrations.py"
                "::test_clusters_and_requests_of_the_last_release_are_there_after_the_step"
            ),
            "api/test_overload.py::test_more_writes_than_may_wait_are_told_when_to_come_back",
        ),
    ),
    Experiment(
        12,
        "A poisoned row",
        "a row that cannot be read stands in the middle of a fleet",
        "it is set aside with its error and can be deleted, and everything else goes on",
        (
            "system/test_machines.py::test_a_poisoned_row_hides_nothing_and_can_be_deleted",
            "flows/test_sizes.py::test_a_poisoned_row_is_set_aside_and_everything_else_goes_on",
            "flows/test_sizes.py::test_a_poisoned_row_that_is_repaired_is_looked_at_like_any_other",
            "reconcile/test_runner.py::test_one_that_raises_is_set_aside_ever_longer_and_others_go_on",
            "flows/test_requests.py::test_a_request_that_this_release_cannot_read_fails_and_holds_nobody",
        ),
    ),
)

PROMISES = (
    Promise(
        1,
        "A write that was answered survives `kill -9`.",
        (1, 3, 11),
        "store/test_db.py::test_what_was_answered_survives_a_kill",
    ),
    Promise(
        2,
        "A call is never lost and never run twice in silence: what cannot be known is `indeterminate`.",
        (5, 6),
        "system/test_survival.py::test_five_hundred_calls_survive_ten_kills",
    ),
    Promise(
        3,
        "A machine that was bought is listed until its provider says that it is gone; none is bought twice"
        " for one node.",
        (1, 2),
        "proving/test_killed_buying.py::test_killed_while_it_buys_each_node_has_one_machine",
    ),
    Promise(
        4,
        "No balance is below zero, each hold is resolved once, entries sum to zero.",
        (3, 9),
        "jobs/test_jobs.py::test_two_hundred_submits_at_once_on_a_balance_for_fifty",
    ),
    Promise(
        5,
        "What is over stays as it is.",
        (1, 6),
        "flows/test_losses.py::test_a_late_report_is_kept_and_moves_nothing",
    ),
    Promise(
        6,
        "A cursor of events skips nothing.",
        (7,),
        "api/test_events.py::test_nothing_is_missing_while_a_thousand_events_are_written",
    ),
    Promise(
        7,
        "Out of reach is not failed: a healthy job is not ended or run again because a channel broke.",
        (6,),
        "flows/test_losses.py::test_an_unreachable_agent_on_a_machine_that_is_there_ends_nothing",
    ),
)
