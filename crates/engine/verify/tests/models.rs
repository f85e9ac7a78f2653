//! Runs the models; what they are is said where they are.

macro_rules! run {
    ($($group:ident: { $($model:ident,)+ })+) => {
        $(mod $group {
            $(
                #[test]
                fn $model() {
                    carole_verify::models::$group::$model();
                }
            )+
        })+
    };
}

run! {
    debts: {
        both_give_up,
        one_gives_up_before_it_knows_that_a_lane_is_needed,
    }
    lanes: {
        the_windows_of_a_lane_are_free_when_it_is_granted,
    }
    posting: {
        a_slot_that_is_filled_anew_is_not_taken_for_the_old_round,
        a_posting_stays_until_it_is_acknowledged,
        a_displaced_posting_is_found,
    }
    reduction: {
        no_segment_is_overwritten_before_it_was_read,
        a_short_last_chunk_waits_for_the_results_under_it,
        a_root_alone_takes_the_results,
    }
    sleep: {
        a_sleeper_is_woken_by_a_posting,
        two_sleepers_of_a_rank_are_woken,
        a_sleeping_engine_is_rung_through_its_eventfd,
    }
    transfer: {
        a_buffer_is_filled_again_when_its_round_was_taken,
        a_small_operation_without_a_cell_waits_for_its_lane,
    }
}
