use super::*;

const START: Duration = Duration::ZERO;

fn peer(slot: u16) -> PeerId {
    PeerId {
        host: "node-a".into(),
        slot,
        incarnation: u128::from(slot) + 100,
    }
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        addresses: vec![([127, 0, 0, 1], port).into()],
        local: format!("carole-{port}"),
        machine: "boot/net".into(),
        certificate: None,
    }
}

/// A job of `size` ranks in which all of `registered` have registered.
fn job(size: usize, registered: impl IntoIterator<Item = usize>) -> State {
    let mut state = State::new("digits", size);
    for rank in registered {
        let decision = state.register(START, peer(rank as u16), rank, endpoint(rank as u16));
        assert!(
            matches!(decision.outcome, Registration::Accepted(_)),
            "{}",
            decision.reason
        );
    }
    state
}

#[test]
fn membership_is_published_in_rank_order_when_the_last_rank_registers() {
    let mut state = job(3, [2, 0]);
    assert_eq!(state.membership_after(0), Answer::Wait);
    let decision = state.register(START, peer(1), 1, endpoint(1));
    assert_eq!(decision.outcome, Registration::Accepted(Outcome::Published));
    assert_eq!(decision.reason, "all 3 ranks have registered: generation 1");
    let Answer::Ready(membership) = state.membership_after(0) else {
        panic!("not published")
    };
    assert_eq!(
        membership.generation,
        Generation {
            term: 1,
            counter: 1
        }
    );
    let slots: Vec<u16> = membership
        .members
        .iter()
        .map(|member| member.peer.slot)
        .collect();
    assert_eq!(slots, [0, 1, 2]);
    assert_eq!(
        state.membership_after(1),
        Answer::Wait,
        "there is no generation 2"
    );
}

#[test]
fn a_waiting_registration_says_who_is_missing() {
    let mut state = job(6, [0]);
    let decision = state.register(START, peer(4), 4, endpoint(4));
    assert_eq!(decision.outcome, Registration::Accepted(Outcome::Waiting));
    assert_eq!(
        decision.reason,
        "2 of 6 ranks have registered; missing: ranks 1-3, 5"
    );
}

#[test]
fn registering_twice_changes_nothing() {
    let mut state = job(2, [0, 1]);
    let before = state.membership_after(0);
    let decision = state.register(START, peer(0), 0, endpoint(0));
    assert_eq!(decision.outcome, Registration::Accepted(Outcome::Repeated));
    assert_eq!(state.membership_after(0), before);
}

#[test]
fn a_taken_rank_is_refused_naming_both_peers() {
    let mut state = job(2, [0]);
    let mut stranger = peer(0);
    stranger.incarnation = 0xbad;
    let decision = state.register(START, stranger.clone(), 0, endpoint(9));
    assert_eq!(decision.outcome, Registration::Refused(Refusal::RankTaken));
    assert_eq!(
        decision.reason,
        "rank 0 is held by node-a:0/00000000000000000000000000000064; \
         node-a:0/00000000000000000000000000000bad cannot take it"
    );
}

#[test]
fn a_peer_cannot_hold_two_ranks() {
    let mut state = job(2, [0]);
    let mut reborn = peer(0);
    reborn.incarnation = 7;
    for peer in [peer(0), reborn] {
        let decision = state.register(START, peer, 1, endpoint(0));
        assert_eq!(decision.outcome, Registration::Refused(Refusal::OtherRank));
    }
}

#[test]
fn an_endpoint_may_change_until_the_membership_is_published() {
    let mut state = job(2, [0]);
    let decision = state.register(START, peer(0), 0, endpoint(77));
    assert_eq!(decision.outcome, Registration::Accepted(Outcome::Repeated));
    state.register(START, peer(1), 1, endpoint(1));
    let Answer::Ready(membership) = state.membership_after(0) else {
        panic!("not published")
    };
    assert_eq!(membership.members[0].endpoint, endpoint(77));
    let decision = state.register(START, peer(0), 0, endpoint(78));
    assert_eq!(
        decision.outcome,
        Registration::Refused(Refusal::EndpointChanged)
    );
}

#[test]
fn a_rank_outside_the_job_is_refused() {
    let mut state = job(2, []);
    let decision = state.register(START, peer(2), 2, endpoint(2));
    assert_eq!(decision.outcome, Registration::Refused(Refusal::NoSuchRank));
    assert_eq!(
        decision.reason,
        "there is no rank 2: the job has 2 ranks, 0 to 1"
    );
    let decision = state.report_lost(START, usize::MAX, "gone", None);
    assert_eq!(decision.outcome, Change::Refused(Refusal::NoSuchRank));
}

#[test]
fn oversized_and_empty_fields_are_refused_by_name() {
    let mut state = job(1, []);
    let mut check = |change: fn(&mut PeerId, &mut Endpoint), field: &str| {
        let (mut peer, mut endpoint) = (peer(0), endpoint(0));
        change(&mut peer, &mut endpoint);
        let decision = state.register(START, peer, 0, endpoint);
        assert_eq!(decision.outcome, Registration::Refused(Refusal::Invalid));
        assert!(
            decision.reason.contains(field),
            "{} does not name {field}",
            decision.reason
        );
    };
    check(|peer, _| peer.host = String::new(), "peer.host");
    check(|peer, _| peer.host = "h".repeat(256), "peer.host");
    check(
        |_, endpoint| endpoint.local = "l".repeat(513),
        "endpoint.local",
    );
    check(
        |_, endpoint| endpoint.machine = "m".repeat(513),
        "endpoint.machine",
    );
    check(
        |_, endpoint| endpoint.certificate = Some("c".repeat(513)),
        "endpoint.certificate",
    );
    check(
        |_, endpoint| endpoint.addresses = vec![endpoint.addresses[0]; 65],
        "endpoint.addresses",
    );
    check(
        |_, endpoint| {
            endpoint.addresses.clear();
            endpoint.local.clear();
        },
        "both empty",
    );
}

#[test]
fn the_first_report_of_a_loss_counts() {
    let mut state = job(2, [0, 1]);
    let decision = state.report_lost(Duration::from_millis(1500), 1, "exited with 3", Some(3));
    assert_eq!(decision.outcome, Change::Recorded);
    let again = state.report_lost(Duration::from_secs(9), 1, "exited with 4", Some(4));
    assert_eq!(again.outcome, Change::Known);
    assert_eq!(again.reason, "rank 1 was lost already: exited with 3");
    let [lost] = state.lost_after(0) else {
        panic!("one loss")
    };
    assert_eq!(
        (lost.sequence, lost.rank, lost.exit_code, lost.at_ms),
        (1, 1, Some(3), 1500)
    );
    assert_eq!(lost.peer, Some(peer(1)));
    assert!(state.lost_after(1).is_empty());
    assert!(state.lost_after(u64::MAX).is_empty());
}

#[test]
fn a_rank_lost_before_publication_ends_every_wait_with_its_reason() {
    let mut state = job(3, [0]);
    state.report_lost(START, 2, "exited with 1", Some(1));
    let Answer::Never(reason) = state.membership_after(0) else {
        panic!("the wait must end")
    };
    assert_eq!(
        reason,
        "the membership cannot become complete: rank 2 was lost (exited with 1)"
    );
    let decision = state.register(START, peer(1), 1, endpoint(1));
    assert_eq!(decision.outcome, Registration::Refused(Refusal::CannotForm));
}

#[test]
fn a_rank_lost_after_publication_leaves_the_membership_readable() {
    let mut state = job(2, [0, 1]);
    state.report_lost(START, 0, "gone", None);
    assert!(matches!(state.membership_after(0), Answer::Ready(_)));
}

#[test]
fn one_who_has_left_is_not_lost() {
    let mut state = job(2, [0, 1]);
    assert_eq!(state.leave(&peer(1)).outcome, Change::Recorded);
    assert_eq!(state.leave(&peer(1)).outcome, Change::Known);
    assert_eq!(
        state
            .report_lost(START, 1, "exited with 1", Some(1))
            .outcome,
        Change::Known
    );
    assert!(state.lost_after(0).is_empty());
    assert_eq!(state.status().left, [1]);
}

#[test]
fn leaving_early_frees_the_rank_for_another_peer() {
    let mut state = job(2, [0]);
    assert_eq!(state.leave(&peer(0)).outcome, Change::Recorded);
    assert_eq!(state.missing(), [0, 1]);
    let decision = state.register(START, peer(7), 0, endpoint(7));
    assert_eq!(decision.outcome, Registration::Accepted(Outcome::Waiting));
    assert_eq!(
        state.leave(&peer(0)).outcome,
        Change::Refused(Refusal::NotRegistered),
        "the rank is another peer's now"
    );
}

#[test]
fn only_a_job_that_began_to_register_can_be_overdue() {
    let limit = Duration::from_secs(30);
    let at = Duration::from_secs;
    let mut state = job(3, []);
    assert_eq!(state.overdue(at(1000), limit), None);
    state.register(at(10), peer(1), 1, endpoint(1));
    assert_eq!(state.overdue(at(39), limit), None);
    assert_eq!(
        state.overdue(at(40), limit).unwrap(),
        "2 of 3 ranks had not registered 30.0 s after the first did: ranks 0, 2"
    );
    state.register(at(41), peer(0), 0, endpoint(0));
    state.register(at(41), peer(2), 2, endpoint(2));
    assert_eq!(state.overdue(at(1000), limit), None);
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let mut state = job(1, []);
    state.report_lost(START, 0, &"é".repeat(4000), None);
    assert_eq!(state.lost_after(0)[0].reason.len(), 4096);
}

#[test]
fn status_tells_the_whole_story() {
    let mut state = job(3, [0, 2]);
    state.report_lost(START, 1, "exited with 9", Some(9));
    let status = state.status();
    assert_eq!((status.job.as_str(), status.size), ("digits", 3));
    assert_eq!(status.registered, [0, 2]);
    assert_eq!(status.missing, [1]);
    assert_eq!(status.generation, None);
    assert_eq!(status.lost.len(), 1);
}
