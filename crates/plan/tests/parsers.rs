//! What is written is read back as it was, and garbage is refused, never a panic.

use carole_plan::{
    Endpoint, Generation, HostList, HostSpec, Member, Membership, PeerId, TopologyName,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn address() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string()),
        any::<u64>().prop_map(|low| format!("fe80::{:x}%eth0", low & 0xffff)),
        "[a-zA-Z]([a-z0-9_-]{0,8}[a-z0-9])?(\\.[a-z]{1,4}){0,2}",
    ]
}

fn host_spec() -> impl Strategy<Value = HostSpec> {
    (address(), 1..=u16::MAX, proptest::option::of(address())).prop_map(|(host, slots, public)| {
        HostSpec::new(&host, slots, public.as_deref()).expect("the parts are well formed")
    })
}

/// Lists without duplicates: those that happen to have one are left out by the constructor.
fn host_list() -> impl Strategy<Value = HostList> {
    vec(host_spec(), 1..8).prop_filter_map("a host twice", |hosts| HostList::new(hosts).ok())
}

fn peer() -> impl Strategy<Value = PeerId> {
    (address(), any::<u16>(), any::<u128>())
        .prop_map(|(host, slot, incarnation)| PeerId::new(host, slot, incarnation))
}

fn membership() -> impl Strategy<Value = Membership> {
    let socket = (any::<std::net::IpAddr>(), any::<u16>()).prop_map(Into::into);
    let endpoint = (
        vec(socket, 0..3),
        ".{0,12}",
        ".{0,12}",
        proptest::option::of("[0-9a-f]{64}"),
    )
        .prop_map(|(addresses, local, machine, certificate)| Endpoint {
            addresses,
            local,
            machine,
            certificate,
        });
    let member = (peer(), endpoint).prop_map(|(peer, endpoint)| Member { peer, endpoint });
    (any::<u64>(), vec(member, 0..6)).prop_map(|(generation, members)| Membership {
        generation: Generation::from_u64(generation),
        members,
    })
}

/// Text that is nearly right, and text that is nothing at all.
fn garbage() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,60}",
        "[ab:0-9,.#=/%\\[\\] \n-]{0,40}",
        "[a-c](:[0-9]{0,6}){0,3}( (max_)?slots=[0-9]{0,3}| public_addr=[a:.\\[\\]]{0,4}){0,3}",
        "\\[?[0-9a-f:]{0,20}\\]?(:[0-9]{1,2})?/?[0-9a-f]{0,33}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn host_specs_are_read_back(spec in host_spec()) {
        prop_assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
        let json = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostSpec>(&json).unwrap(), spec);
    }

    #[test]
    fn host_lists_and_host_files_are_read_back(hosts in host_list()) {
        prop_assert_eq!(hosts.to_string().parse(), Ok(hosts.clone()));
        prop_assert_eq!(HostList::from_host_file(&hosts.to_host_file()), Ok(hosts.clone()));
        // MPICH's dialect is the list with a line end for every comma.
        let lines = hosts.to_string().replace(',', "\n");
        prop_assert_eq!(HostList::from_host_file(&lines), Ok(hosts));
    }

    #[test]
    fn one_host_has_one_spelling(low in any::<u16>()) {
        let long = PeerId::new(format!("fe80:0:0:0:0:0:0:{low:04x}%eth0"), 3, 7);
        prop_assert_eq!(long, PeerId::new(format!("fe80::{low:x}%eth0"), 3, 7));
    }

    #[test]
    fn peer_ids_are_read_back(peer in peer()) {
        prop_assert_eq!(format!("{peer:#}").parse(), Ok(peer.clone()));
        let json = serde_json::to_string(&peer).unwrap();
        prop_assert_eq!(serde_json::from_str::<PeerId>(&json).unwrap(), peer);
    }

    #[test]
    fn memberships_survive_json(membership in membership()) {
        let json = serde_json::to_string(&membership).unwrap();
        prop_assert_eq!(serde_json::from_str::<Membership>(&json).unwrap(), membership);
    }

    #[test]
    fn garbage_is_refused_or_read_back(text in garbage()) {
        if let Ok(spec) = text.parse::<HostSpec>() {
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
        if let Ok(hosts) = text.parse::<HostList>() {
            prop_assert_eq!(hosts.to_string().parse(), Ok(hosts));
        }
        if let Ok(hosts) = HostList::from_host_file(&text) {
            prop_assert_eq!(HostList::from_host_file(&hosts.to_host_file()), Ok(hosts));
        }
        if let Ok(peer) = text.parse::<PeerId>() {
            prop_assert_eq!(format!("{peer:#}").parse(), Ok(peer));
        }
        if let Ok(name) = text.parse::<TopologyName>() {
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
        // Only that they return is of interest.
        let _ = serde_json::from_str::<Membership>(&text);
        let _ = serde_json::from_str::<HostSpec>(&format!("{text:?}"));
    }

    #[test]
    fn placement_fills_slots_in_order(slots in vec(1_u16..5, 1..6), surplus in 1_usize..4) {
        let hosts: Vec<HostSpec> = slots
            .iter()
            .enumerate()
            .map(|(i, &slots)| HostSpec::new(&format!("n{i}"), slots, None).unwrap())
            .collect();
        let hosts = HostList::new(hosts).unwrap();
        let total = hosts.total_slots();
        let full = hosts.place(total).unwrap();
        prop_assert_eq!(full.len(), total);
        for ranks in 0..=total {
            prop_assert_eq!(&hosts.place(ranks).unwrap()[..], &full[..ranks]);
        }
        for host in &hosts {
            let used: Vec<u16> = full.iter().filter(|p| p.host == host).map(|p| p.slot).collect();
            prop_assert!(used.into_iter().eq(0..host.slots()));
        }
        prop_assert!(hosts.place(total + surplus).is_err());
    }
}
