//! The list of behaviours, once, and the macro that makes tests of it.

use std::future::Future;
use std::time::Duration;

/// Longer than any behaviour takes on a busy machine; a behaviour that waits for itself ends here.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs one behaviour on a fresh runtime with two workers, as [`conformance!`](crate::conformance!) does.
///
/// # Panics
///
/// When the behaviour does, or when it does not end.
pub fn run<F: Future<Output = ()>>(behaviour: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be started");
    runtime.block_on(async {
        let ended = tokio::time::timeout(PATIENCE, behaviour()).await;
        assert!(ended.is_ok(), "the behaviour did not end within {PATIENCE:?}");
    });
}

/// Makes one `#[test]` of every behaviour of the [suite](crate::suite), for one [`Harness`](crate::Harness).
///
/// The tests are named like the behaviours, in modules named like the suite's, such as `claim::a_claim_of_nothing_is_empty`.
#[macro_export]
macro_rules! conformance {
    ($harness:ty) => {
        $crate::conformance! { @tests $harness;
            admin {
                an_overview_counts_by_topic_and_state,
                an_overview_tells_running_from_expired_leases,
                the_oldest_pending_message_is_one_that_could_be_claimed,
                a_message_is_found_by_both_names,
                pages_follow_the_sequence,
                each_state_lists_its_own,
                a_topic_filter_is_exact,
                a_correlation_id_is_found_exactly,
                an_error_filter_is_a_literal_substring,
                age_filters_count_from_the_right_moment,
                an_admin_call_is_bounded,
            }
            again {
                a_pending_message_is_known,
                a_waiting_message_is_known,
                a_claimed_message_is_known,
                a_done_message_is_known,
                a_dead_message_is_known,
                a_message_named_twice_in_a_batch_is_stored_once,
                a_known_message_leaves_the_transaction_whole,
                a_rolled_back_message_can_be_enqueued_again,
            }
            born_leased {
                a_born_leased_message_is_held_by_its_writer,
                a_born_leased_message_that_is_not_due_waits,
                a_born_leased_message_that_has_expired_is_not_held,
                a_born_leased_message_of_a_dead_writer_is_taken_over,
                a_rolled_back_born_leased_message_never_existed,
            }
            cancellation {
                a_claim_cut_short_holds_nothing_for_long,
                a_settle_cut_short_is_whole_or_nothing,
                an_exchange_cut_short_loses_nothing,
                an_enqueue_cut_short_can_be_repeated,
                an_enqueue_cut_short_is_rolled_back,
                housekeeping_cut_short_does_no_harm,
            }
            claim {
                a_claim_of_nothing_is_empty,
                a_claim_hands_out_whole_messages,
                a_claim_of_ids_takes_the_same_leases,
                a_claim_never_exceeds_its_limit,
                claims_follow_the_sequence,
                a_leased_message_is_not_claimed,
                a_claim_records_owner_and_lease,
                two_owners_share_the_queue,
                a_claim_counts_the_attempt,
                a_claim_needs_a_lease_and_a_limit,
                the_recommended_leases_and_batches_work,
                an_expired_message_is_not_claimed,
                a_message_is_claimed_between_due_and_expiry,
                those_that_waited_come_first,
                messages_that_wait_do_not_hide_those_that_are_ready,
                an_undecodable_row_is_handed_out_as_such,
                a_foreign_row_is_a_message,
            }
            coordinator {
                everything_in_one_call_takes_effect_together,
                what_was_enqueued_is_pending_and_may_be_claimed_by_the_same_call,
                a_batch_in_the_users_transaction_takes_effect_with_its_commit,
                a_batch_in_a_transaction_that_is_undone_leaves_nothing,
                a_batch_in_a_nested_part_that_fails_leaves_nothing,
                nonsense_is_answered_item_by_item,
                a_zombie_is_told_and_the_rest_takes_effect,
                claims_keep_the_order_of_keys,
                others_pass_over_what_an_open_transaction_has_claimed,
                a_claim_that_is_undone_moves_no_floor,
                a_claim_behind_a_snapshot_is_refused,
                a_duplicate_of_an_inbox_message_is_an_answer,
                wrong_arguments_are_refused_as_a_whole,
                two_coordinators_at_once_never_share_a_message,
            }
            coordinator_progress {
                a_result_of_a_receptor_can_be_read,
                what_a_receptor_has_done_stays_done,
                a_checkpoint_never_moves_back,
                the_furthest_of_many_checkpoints_at_once_stands,
                what_is_named_twice_counts_once,
                names_are_compared_byte_for_byte,
                progress_is_deployed_when_it_is_used,
                old_results_are_purged_with_their_messages,
                purges_of_results_at_once_do_no_harm,
                a_batch_cut_short_is_whole_or_nothing,
                a_batch_cut_short_in_a_transaction_is_never_half_written,
            }
            data {
                every_field_comes_back,
                due_time_and_expiry_come_back_as_instants,
                a_payload_of_any_bytes_comes_back,
                an_empty_payload_is_a_payload,
                text_of_every_kind_comes_back,
                topics_are_told_apart_byte_by_byte,
                any_id_but_nil_names_a_message,
                a_topic_must_not_be_empty,
                texts_have_up_to_255_characters,
                an_empty_correlation_id_is_none,
                a_nul_is_refused_and_the_transaction_goes_on,
                a_payload_may_fill_its_limit,
                a_raised_limit_holds,
                headers_may_fill_their_limit,
            }
            detached {
                a_detached_handle_is_the_same_store,
                a_detached_handle_renews_and_settles_what_another_claimed,
                a_detached_handle_does_not_need_the_first,
                a_detached_handle_works_while_the_first_runtime_is_blocked,
            }
            enqueue {
                a_committed_message_is_stored_with_the_change_it_tells_about,
                a_rolled_back_message_never_existed,
                an_uncommitted_message_is_invisible,
                enqueue_without_a_transaction_commits_by_itself,
                a_batch_is_stored_whole_or_not_at_all,
                an_empty_batch_is_a_no_op,
                a_batch_is_bounded,
                a_large_batch_keeps_its_order,
                a_mixed_batch_is_answered_in_its_order,
                every_message_has_a_row_of_its_own,
                a_row_number_is_never_used_again,
                a_message_is_stored_at_the_databases_time,
                a_store_shows_the_databases_clock,
                a_new_message_is_pending_and_untried,
                a_delayed_message_waits,
                a_due_instant_follows_the_databases_clock,
                a_message_due_in_the_past_is_ready_at_once,
            }
            exchange {
                an_exchange_settles_and_claims,
                an_exchange_equals_settle_and_claim,
                an_exchange_reports_lost_leases,
                either_half_of_an_exchange_may_be_empty,
                an_exchange_never_exceeds_its_limit,
                what_an_exchange_gives_back_comes_again,
                a_refused_exchange_changes_nothing,
            }
            guard {
                only_the_owner_settles,
                unknown_rows_are_ignored,
                another_fence_changes_nothing,
                a_free_message_cannot_be_settled,
                a_zombie_changes_nothing,
                a_reaped_worker_changes_nothing,
                a_late_settlement_stands_when_nobody_took_over,
                a_settlement_applies_once,
                the_first_of_two_verdicts_in_one_call_counts,
                a_late_mark_never_reopens_a_done_message,
                a_late_mark_never_changes_a_dead_or_replayed_message,
            }
            in_transaction {
                an_ack_takes_effect_with_the_commit,
                an_ack_that_is_rolled_back_leaves_the_message_held,
                a_zombie_is_told_in_its_transaction,
                every_verdict_means_the_same,
                a_message_is_settled_once,
                answers_come_in_the_order_of_the_settlements,
                a_message_a_verdict_and_a_row_are_one_commit,
                a_message_born_leased_in_it_can_be_settled_in_it,
                an_inboxes_queue_settles_in_the_outboxes_transaction,
                what_it_gives_back_is_found_at_once,
                a_spoiled_transaction_settles_nothing,
                nothing_stands_alone_after_the_transaction_has_ended,
            }
            in_transaction_races {
                nobody_takes_a_message_that_waits_for_its_commit,
                the_second_of_two_transactions_waits_for_the_first,
                one_of_many_transactions_has_an_effect,
                workers_in_and_outside_of_transactions_share_the_queue,
                a_mark_never_undoes_a_verdict,
                a_settle_cut_short_is_never_half_written,
            }
            inbox {
                an_unknown_message_becomes_seen,
                a_processed_message_is_recognised,
                names_are_told_apart_byte_by_byte,
                names_have_up_to_255_characters,
                bad_names_are_refused_by_every_call,
                another_content_is_counted_and_never_fails_the_call,
                hashes_of_two_algorithms_are_not_compared,
                mismatches_are_listed_in_pages,
                marks_move_a_message_and_never_leave_done,
                one_of_many_deliveries_is_the_first,
            }
            inbox_cancellation {
                a_receive_cut_short_is_whole_or_nothing,
                a_look_cut_short_can_be_repeated,
                a_mark_cut_short_is_whole_or_nothing,
                a_lease_cut_short_runs_out,
                a_registration_cut_short_is_rolled_back,
                housekeeping_cut_short_does_no_harm,
            }
            inbox_consume {
                a_consumed_message_is_done,
                a_rolled_back_consumer_leaves_nothing,
                a_begun_transaction_takes_a_receipt,
                a_receipt_is_new_once_in_a_transaction,
                what_the_queue_has_is_not_consumed,
                a_consumer_counts_another_content,
                a_consumer_is_told_of_another_content,
                a_lease_keeps_other_consumers_away,
                a_zombie_consumer_registers_nothing,
                a_second_consumer_waits_for_the_first,
                thirty_two_consumers_have_one_effect,
            }
            inbox_keep {
                a_purge_waits_for_the_retention,
                a_handled_message_is_remembered_from_its_end,
                a_purge_of_the_queue_forgets_nothing,
                a_purge_touches_only_done_messages,
                a_purge_is_bounded_and_starts_with_the_oldest,
                purges_race_with_deliveries_and_lose_none,
                an_inbox_deploys_its_tables,
                an_inbox_without_deployment_creates_nothing,
                an_inbox_has_a_name_and_shows_no_payload,
            }
            inbox_queue {
                a_claim_hands_out_received_messages,
                a_renewed_lease_keeps_a_received_message,
                a_claim_needs_lease_limit_and_owner,
                an_acked_message_is_processed,
                an_abandoned_message_comes_again,
                a_failed_message_is_dead_until_replayed,
                a_reap_frees_received_messages,
                workers_never_share_a_received_message,
                a_mark_takes_the_queued_message_along,
            }
            inbox_receive {
                a_new_message_is_queued,
                a_seen_message_is_queued,
                a_waiting_message_is_replaced,
                a_dead_message_is_replaced,
                a_done_message_is_not_queued_again,
                a_due_time_is_waited_for,
                a_batch_is_received_whole_and_answered_in_order,
                messages_have_the_limits_of_the_queue,
                deliveries_at_once_leave_one_message,
            }
            inbox_again {
                a_running_attempt_keeps_its_lease_and_the_next_gets_the_new_content,
                a_verdict_ends_a_message_whatever_came_meanwhile,
                a_new_due_time_is_waited_for_after_a_lost_lease,
                a_running_attempt_keeps_its_key,
                a_lease_that_ran_out_protects_nothing,
                a_delivery_that_is_rolled_back_changes_no_running_attempt,
                the_hash_on_record_is_that_of_the_queued_content,
                deliveries_and_verdicts_at_once_lose_no_content,
            }
            inbox_walks {
                shard_0_agrees_with_the_reference,
                shard_1_agrees_with_the_reference,
                shard_2_agrees_with_the_reference,
                shard_3_agrees_with_the_reference,
            }
            instances {
                an_instance_is_listed_with_what_it_said,
                a_heartbeat_moves_on_when_it_was_seen_and_not_when_it_started,
                instances_are_listed_in_the_order_of_their_ids,
                a_silent_instance_is_not_live,
                an_instance_that_slept_is_there_again,
                leaving_is_at_once,
                thirty_two_heartbeats_at_once_are_all_heard,
                what_an_instance_says_is_bounded,
                foreign_metadata_is_shown_and_not_obeyed,
                a_sign_from_the_future_is_none,
                the_long_silent_are_forgotten,
                the_list_is_deployed_when_it_is_used,
                each_queue_has_a_list_of_its_own,
                a_heartbeat_cut_short_harms_nobody,
            }
            isolation {
                every_level_can_be_begun,
                the_settings_name_the_level,
                what_was_taken_over_behind_a_snapshot_is_not_settled,
                what_was_claimed_behind_a_snapshot_is_settled_or_not,
                thirty_two_consumers_have_one_effect_at_every_level,
                one_of_many_verdicts_stands_at_every_level,
            }
            lease {
                a_renewed_lease_lasts,
                a_renewal_counts_nothing,
                a_renewal_may_shorten_a_lease,
                a_lease_that_ran_out_can_be_renewed_when_nobody_took_over,
                renewals_are_answered_in_order,
                a_renewal_needs_a_lease,
                a_lease_that_ran_out_is_taken_over,
                a_lease_given_back_is_not_lost,
                a_message_that_kills_its_workers_is_buried,
            }
            left_out {
                a_claim_brings_all_but_the_topics_it_leaves_out,
                what_is_left_out_lies_in_nobodys_way,
                what_was_left_out_is_found_when_it_is_wanted,
                later_messages_of_a_key_wait_behind_one_that_is_left_out,
                many_keys_behind_what_is_left_out_hold_up_nobody,
                what_waited_is_brought_once_and_then_left_out,
            }
            limits {
                instants_are_cut_to_microseconds,
                instants_of_every_year_come_back,
                a_delay_reaches_to_the_horizon,
                long_leases_and_retentions_work,
                attempts_saturate,
                attempts_never_fall_below_none,
                lost_leases_saturate,
                nothing_shows_a_payload,
            }
            order {
                a_claim_brings_runs,
                a_key_waits_for_its_held_message,
                an_exchange_goes_on_in_order,
                a_failed_message_is_not_overtaken,
                a_message_given_back_keeps_its_place,
                a_lost_run_comes_back_in_order,
                a_zombie_of_a_key_changes_nothing,
                a_dead_message_blocks_its_key,
                a_deleted_message_frees_its_key,
                a_dead_message_can_be_skipped,
                messages_behind_a_dead_one_can_be_parked,
                an_expired_message_is_not_jumped,
                a_scheduled_message_holds_nobody_up,
                keys_are_compared_byte_for_byte,
                a_late_commit_waits_for_its_key,
                a_sequence_is_handed_out_one_claim_at_a_time,
                a_dead_message_stops_a_sequence,
                blocked_keys_are_listed,
            }
            order_again {
                replayed_messages_wait_for_a_later_one_that_is_held,
                a_message_held_between_replayed_ones_is_seen,
                replayed_messages_of_a_key_come_in_runs,
                a_replayed_head_lets_its_key_flow,
                the_beginning_of_a_run_waits_for_its_end,
                a_replayed_sequence_waits_for_a_later_one_that_is_held,
                a_message_that_wakes_waits_for_a_held_one_behind_replayed_ones,
                messages_that_become_due_behind_a_dead_one_are_parked,
                what_comes_late_waits_for_an_open_claim,
                however_many_come_late_they_wait_for_a_held_one,
                a_long_backlog_that_others_have_gone_past_is_handed_out_one_run_at_a_time,
                what_an_open_claim_wakes_keeps_its_key,
            }
            order_races {
                many_workers_keep_the_order_of_every_key,
                a_held_key_does_not_fill_the_claims_of_others,
            }
            owned {
                owned_messages_are_stored_like_others,
                owned_messages_can_be_born_leased,
                owned_messages_may_wait_and_expire,
                an_owned_message_that_is_rolled_back_never_existed,
                an_owned_message_whose_id_was_told_is_looked_for,
                an_owned_message_with_a_clone_is_looked_for,
            }
            partitions {
                a_claim_takes_from_served_partitions,
                however_it_is_stored_a_message_is_in_its_partition,
                a_key_without_a_hash_belongs_to_the_first_partition,
                two_that_divide_the_partitions_share_everything,
                a_message_that_comes_back_stays_in_its_partition,
                a_parked_message_stays_in_its_partition,
                the_order_of_a_key_is_kept,
                messages_of_another_partition_are_not_jumped,
                an_exchange_takes_from_served_partitions,
                new_partitions_are_looked_through_at_once,
                a_sequence_knows_no_partitions,
            }
            pauses {
                a_pause_lasts_until_the_route_is_resumed,
                a_second_pause_changes_nothing_and_tells_of_the_first,
                routes_are_told_apart_to_the_letter,
                what_is_said_of_a_pause_is_bounded,
                many_at_once_pause_a_route_once,
                the_list_is_deployed_when_it_is_used,
                each_queue_has_a_list_of_its_own,
                a_pause_cut_short_harms_nobody,
            }
            races {
                sixteen_claimants_never_share_a_message,
                claimants_never_share_a_message_that_waited,
                claimants_never_share_a_takeover,
                exchanges_never_share_a_message,
                one_of_two_verdicts_wins,
                settlers_in_opposite_orders_do_not_deadlock,
                a_reap_and_a_settle_agree,
                a_reap_and_a_renewal_agree,
                purges_and_reaps_take_nothing_from_workers,
                nothing_is_lost_and_nothing_is_phantom,
                a_message_enqueued_by_many_is_stored_once,
                a_dead_message_goes_one_way,
            }
            reap {
                a_reap_frees_leases_that_ran_out,
                a_reap_leaves_running_leases,
                a_reap_leaves_done_and_dead_messages,
                a_reap_counts_each_lost_lease_once,
                a_reap_buries_expired_messages,
                a_message_that_expires_before_it_is_due_is_buried,
                an_expired_message_is_left_to_its_holder,
                a_reap_goes_window_by_window,
                a_reap_needs_a_window,
            }
            replay {
                a_replayed_message_starts_anew,
                a_replay_counts_itself,
                every_dead_message_can_be_replayed,
                one_of_many_can_be_replayed,
                a_replay_is_bounded_and_can_be_tried_dry,
                only_dead_messages_can_be_replayed_or_deleted,
                a_delete_is_bounded_and_final,
                an_undecodable_row_can_be_replayed,
            }
            replay_done {
                a_delivered_message_can_be_delivered_again,
                a_receipt_is_not_replayed,
                a_replay_takes_what_ended_as_it_was_told,
                a_replay_of_the_delivered_is_bounded,
                a_replay_goes_on_after_what_it_took,
                a_tally_says_when_messages_ended,
                dead_messages_are_grouped,
            }
            rescan {
                what_the_same_handle_gives_back_is_found_at_once,
                a_retry_that_becomes_due_is_found_at_once,
                what_the_same_handle_reaps_or_replays_is_found_at_once,
                new_messages_are_found_at_once,
                with_no_interval_everything_is_found,
                what_was_committed_before_a_claim_is_found_beside_another_claim,
            }
            retention {
                delete_leaves_nothing,
                a_kept_message_stays_whole,
                a_receipt_keeps_no_content,
                a_purge_waits_for_the_retention,
                a_purge_touches_only_done_messages,
                a_purge_is_bounded_and_starts_with_the_oldest,
                a_change_of_retention_is_followed,
                a_purged_message_is_forgotten,
            }
            savepoints {
                what_came_after_a_savepoint_vanishes_with_it,
                a_released_savepoint_keeps_what_came_after,
                a_rollback_takes_savepoints_along,
                a_verdict_is_undone_with_its_savepoint,
                a_receipt_is_undone_with_its_savepoint,
                a_failed_statement_is_undone_with_its_savepoint,
                a_spoiled_transaction_is_mended_by_its_savepoint_or_lost,
                a_savepoint_mends_nothing_that_came_before_it,
                a_savepoint_that_was_never_set_cannot_be_rolled_back_to,
                a_rollback_to_a_savepoint_cut_short_commits_nothing_else,
                a_savepoint_mends_a_settle_cut_short,
            }
            schema {
                a_deployment_can_be_repeated,
                check_creates_nothing,
                assume_looks_at_nothing,
                a_newer_schema_is_refused_and_not_touched,
                an_older_schema_is_brought_up,
                eight_instances_deploy_at_once,
                two_outboxes_do_not_meet,
                the_script_names_the_configured_tables,
                impossible_limits_are_refused,
                names_that_could_carry_sql_are_refused,
                a_store_has_a_name,
            }
            settle {
                an_acked_message_is_done,
                an_acked_message_is_never_claimed,
                an_abandoned_message_is_free_again,
                an_abandoned_message_waits_for_its_delay,
                an_abandon_records_its_reason,
                a_failed_message_is_dead,
                a_fail_without_a_reason_keeps_the_last_one,
                a_released_message_gets_its_attempt_back,
                verdicts_of_one_call_do_not_mix,
                an_empty_settle_is_a_no_op,
                a_settle_is_bounded,
                a_reason_is_cut_at_4000_characters,
                a_reason_with_nul_can_be_stored,
                a_delay_without_end_is_bounded,
            }
            together {
                all_of_a_claim_are_seen_leased,
                a_part_ends_and_the_rest_stays_leased,
                each_has_a_verdict_of_its_own,
                what_is_given_back_comes_before_later_ones,
                what_ran_out_is_taken_over,
                what_ran_out_can_be_settled_until_it_is_taken,
                what_ran_out_is_released_by_a_reap,
                only_what_is_renewed_lasts,
                a_replayed_message_is_none_of_its_old_claim,
                messages_of_several_claims_end_together,
                one_with_a_key_comes_among_the_others,
                one_that_expires_while_it_is_held_is_settled,
                a_sequence_waits_for_all_that_is_held,
            }
            transaction {
                a_begun_transaction_stores_the_message_with_the_users_row,
                a_begun_transaction_needs_no_message,
                a_begun_transaction_can_be_rolled_back,
                a_dropped_transaction_leaves_nothing,
                a_spoiled_transaction_is_never_committed,
                a_spoiled_transaction_spoils_no_other,
                a_transaction_ended_behind_its_back_is_never_committed,
                a_commit_without_its_session_is_never_reported_as_committed,
                a_begin_cut_short_leaves_nothing_open,
                a_commit_cut_short_is_finished,
                a_rollback_cut_short_is_finished,
                a_commit_after_an_enqueue_cut_short_tells_the_truth,
                a_nested_transaction_is_a_part_of_it,
                a_nested_begin_cut_short_spoils_no_other,
                a_refused_message_leaves_it_whole,
                a_message_enqueued_again_in_it_is_stored_once,
                a_message_is_born_leased_in_it,
                many_transactions_at_once_all_commit,
            }
            wakeups {
                a_wake_up_is_heard_by_every_listener,
                many_wake_ups_are_heard_as_one_or_more,
                a_wait_cut_short_misses_nothing,
                listeners_take_nothing_from_the_store,
                a_broken_subscription_says_so,
                another_outbox_is_not_woken,
            }
            walks {
                shard_0_agrees_with_the_reference,
                shard_1_agrees_with_the_reference,
                shard_2_agrees_with_the_reference,
                shard_3_agrees_with_the_reference,
                shard_4_agrees_with_the_reference,
                shard_5_agrees_with_the_reference,
                shard_6_agrees_with_the_reference,
                shard_7_agrees_with_the_reference,
                shard_8_agrees_with_the_reference,
                shard_9_agrees_with_the_reference,
            }
        }
    };
    (@tests $harness:ty; $($group:ident { $($behaviour:ident,)* })*) => {
        $(
            mod $group {
                use super::*;
                $(
                    #[test]
                    fn $behaviour() {
                        $crate::run($crate::suite::$group::$behaviour::<$harness>);
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// Every public behaviour in the suite's files: its group, its name and its doc lines.
    fn behaviours() -> Vec<(String, String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/suite");
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let group = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let source = fs::read_to_string(&path).unwrap();
            let mut docs = String::new();
            // A macro names behaviours further in.
            for line in source.lines().map(str::trim_start).filter(|line| !line.contains('$')) {
                if let Some(doc) = line.strip_prefix("///") {
                    docs.push_str(doc);
                } else if let Some(rest) = line.strip_prefix("pub async fn ") {
                    let name = rest.split(['<', '(']).next().unwrap().to_owned();
                    found.push((group.clone(), name, std::mem::take(&mut docs)));
                } else {
                    docs.clear();
                }
            }
        }
        found
    }

    #[test]
    fn the_list_names_every_behaviour_once() {
        let source = include_str!("conformance.rs");
        let list = source.split("@tests $harness;\n").nth(1).unwrap().split("    };").next().unwrap();
        let mut listed = Vec::new();
        let mut group = "";
        for line in list.lines().map(str::trim) {
            match line.strip_suffix(" {") {
                Some(name) => group = name,
                None => listed.extend(line.strip_suffix(',').map(|name| format!("{group}::{name}"))),
            }
        }
        let distinct: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(distinct.len(), listed.len(), "a behaviour is listed twice");
        let written: BTreeSet<_> =
            behaviours().into_iter().map(|(group, name, _)| format!("{group}::{name}")).collect();
        assert!(written.len() > 100, "the suite's files were found");
        assert_eq!(written, distinct, "behaviours and the list in `conformance!` differ");
    }

    #[test]
    fn every_behaviour_names_what_it_proves() {
        for (group, name, docs) in behaviours() {
            let last = docs.trim_end_matches('.').rsplit([' ', ',']).next().unwrap_or_default();
            let is_id = ["OBX-", "IBX-", "HOT-", "WRK-", "BUS-", "H"]
                .iter()
                .any(|prefix| last.strip_prefix(prefix).is_some_and(|number| number.parse::<u16>().is_ok()));
            assert!(is_id && docs.ends_with('.'), "{group}::{name} must end its docs with ids, ends with {last:?}");
        }
    }
}
