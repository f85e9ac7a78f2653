//! A job that is written is read back as it was, and garbage is refused, never a panic.

use std::fmt::Debug;
use std::num::NonZeroU16;
use std::str::FromStr;

use carole_plan::job::{
    Amounts, ApiVersion, Cache, Cleanup, Cpu, Elastic, Kind, Memory, Metadata, Name, Resources,
    Role, Spec, Strategy as JobStrategy, TimeSpan,
};
use carole_plan::{Backend, JobSpec};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::Index;

fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?".prop_map(|text| text.parse().unwrap())
}

/// Anything that a process can be given: every character but zero.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        "[\\PC\n\t\r\u{7f}\u{85}\u{2028}\u{feff}&&[^\u{0}]]{0,8}",
        vec(any::<char>().prop_filter("zero", |c| *c != '\0'), 0..8).prop_map(String::from_iter),
        Just("no".to_owned()),
        Just("0.5".to_owned()),
    ]
}

fn line() -> impl Strategy<Value = String> {
    text().prop_filter("one line", |text| {
        !text.is_empty() && !text.chars().any(char::is_control)
    })
}

fn command() -> impl Strategy<Value = Vec<String>> {
    (line(), vec(text(), 0..4))
        .prop_map(|(program, arguments)| std::iter::once(program).chain(arguments).collect())
}

fn count(most: u16) -> impl Strategy<Value = NonZeroU16> {
    (1..=most).prop_map(|count| NonZeroU16::new(count).unwrap())
}

/// Two quantities with one of these suffixes, the smaller first.
fn pair<T: Copy + Ord + FromStr<Err: Debug> + Debug>(
    suffix: &'static str,
) -> impl Strategy<Value = (Option<T>, Option<T>)> {
    let quantity = (1_u32..9999, suffix).prop_map(|(number, suffix)| format!("{number}{suffix}"));
    (of(quantity.clone()), of(quantity)).prop_map(|(one, other)| {
        let [one, other] = [one, other].map(|text| text.map(|text| text.parse::<T>().unwrap()));
        match (one, other) {
            (Some(one), Some(other)) => (Some(one.min(other)), Some(one.max(other))),
            _ => (one, other),
        }
    })
}

fn resources() -> BoxedStrategy<Resources> {
    let amounts = |(cpu, memory, gpu)| Amounts { cpu, memory, gpu };
    (
        pair::<Cpu>("[mk]?"),
        pair::<Memory>("[kMGT]?|[KMGT]i"),
        of(0_u16..9),
    )
        .prop_map(move |(cpu, memory, gpu)| Resources {
            requests: amounts((cpu.0, memory.0, gpu)),
            limits: amounts((cpu.1, memory.1, gpu)),
        })
        .boxed()
}

fn role() -> BoxedStrategy<Role> {
    let sizes = (count(9), of((0_u16..9, 0_u16..9, 0_u16..9)), count(3));
    let rest = (of(line()), of(line()), of(command()), of(resources()));
    (
        sizes,
        command(),
        btree_map("[!-<>-~]{1,9}", text(), 0..4),
        rest,
    )
        .prop_map(
            |((replicas, elastic, slots), command, env, (workdir, image, setup, resources))| Role {
                replicas,
                elastic: elastic.map(|(below, above, spares)| Elastic {
                    min: NonZeroU16::new(replicas.get().saturating_sub(below).max(1)).unwrap(),
                    max: replicas.saturating_add(above),
                    spares,
                }),
                command,
                env,
                workdir,
                image,
                slots,
                setup,
                resources,
            },
        )
        .boxed()
}

/// A role of which there may be only one process.
fn single() -> BoxedStrategy<Role> {
    role()
        .prop_map(|role| Role {
            replicas: NonZeroU16::MIN,
            slots: NonZeroU16::MIN,
            elastic: None,
            ..role
        })
        .boxed()
}

fn roles() -> BoxedStrategy<(JobStrategy, Vec<(Name, Role)>)> {
    let called = |name: &str| Just(name.parse::<Name>().unwrap());
    let workers = || (called("worker"), role());
    let launcher = (called("launcher"), single());
    let servers = (called("ps"), role());
    let chief = (called("chief"), single());
    prop_oneof![
        workers().prop_map(|worker| (JobStrategy::AllReduce, vec![worker])),
        (workers(), of(launcher)).prop_map(|(worker, launcher)| {
            (
                JobStrategy::Mpi,
                std::iter::once(worker).chain(launcher).collect(),
            )
        }),
        (workers(), servers, of(chief)).prop_map(|(worker, servers, chief)| {
            let roles = [worker, servers].into_iter().chain(chief).collect();
            (JobStrategy::ParameterServer, roles)
        }),
        vec((name(), role()), 1..4).prop_map(|roles| (JobStrategy::Program, roles)),
    ]
    .boxed()
}

fn job() -> BoxedStrategy<JobSpec> {
    let notes = || btree_map("[ -~]{0,20}", text(), 0..3);
    let metadata = (name(), of(name()), notes(), notes()).prop_map(
        |(name, namespace, labels, annotations)| Metadata {
            name,
            namespace,
            labels,
            annotations,
        },
    );
    let cleanup = prop_oneof![
        Just(Cleanup::Running),
        Just(Cleanup::All),
        Just(Cleanup::None)
    ];
    let deadline =
        (1_u32..99_999_999).prop_map(|seconds| format!("{seconds}s").parse::<TimeSpan>().unwrap());
    let cache = line().prop_map(|version| Cache { version });
    let rest = (any::<u16>(), of(cache), of(deadline), cleanup, of(name()));
    (metadata, roles(), rest)
        .prop_map(
            |(metadata, (strategy, roles), (retries, cache, deadline, cleanup, queue))| JobSpec {
                api_version: ApiVersion::V1Alpha1,
                kind: Kind::CaroleJob,
                metadata,
                spec: Spec {
                    strategy,
                    roles: roles.into_iter().collect(),
                    retries,
                    cache,
                    deadline,
                    cleanup,
                    queue,
                },
            },
        )
        .boxed()
}

/// Pieces of job files and of YAML in any order.
fn garbage() -> BoxedStrategy<String> {
    let piece = prop_oneof![
        Just("apiVersion: carole.dev/v1alpha1\nkind: CaroleJob\n"),
        Just("metadata: {name: a}\nspec:\n"),
        Just("  strategy: AllReduce\n  roles:\n    worker:\n"),
        Just("      command: [a]\n"),
        Just("replicas: 4"),
        Just("&a "),
        Just("*a"),
        Just("<<: "),
        Just("- "),
        Just("? "),
        Just(": "),
        Just("!!str "),
        Just("!<tag:yaml.org,2002:int> "),
        Just("%YAML 1.1\n"),
        Just("---\n"),
        Just("...\n"),
        Just("|2-\n"),
        Just(">\n"),
        Just("'"),
        Just("\""),
        Just("\\u"),
        Just("\\x4"),
        Just("#"),
        Just("["),
        Just("]"),
        Just("{"),
        Just("}"),
        Just(","),
        Just("\t"),
        Just("\n"),
        Just("\r"),
        Just("  "),
        Just("\u{0}"),
        Just("\u{feff}"),
        Just("é\u{2028}"),
    ];
    prop_oneof![
        ".{0,60}",
        "(?s:.{0,60})",
        vec(piece, 0..24).prop_map(|pieces| pieces.concat()),
    ]
    .boxed()
}

proptest! {
    // A whole job is drawn from thousands of numbers.
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn jobs_are_read_back(job in job()) {
        prop_assert_eq!(job.validate(), Ok(()));
        prop_assert_eq!(JobSpec::from_yaml(&job.to_string()), Ok(job.clone()));
        prop_assert_eq!(serde_json::from_str::<JobSpec>(&job.to_string()).unwrap(), job);
    }

    #[test]
    fn what_is_refused_by_a_backend_is_refused_in_one_line(job in job()) {
        for backend in Backend::ALL {
            if let Err(error) = job.refuse_unsupported(backend) {
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }

    #[test]
    fn a_damaged_job_file_is_refused_in_one_line(
        job in job(),
        place in any::<Index>(),
        piece in garbage(),
    ) {
        let mut text = job.to_string();
        let place = place.index(text.len());
        let place = (0..=place).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
        text.insert_str(place, &piece);
        if let Err(error) = JobSpec::from_yaml(&text) {
            prop_assert!(!error.to_string().contains(char::is_control));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn garbage_is_refused_in_one_line(text in garbage()) {
        match JobSpec::from_yaml(&text) {
            Ok(job) => prop_assert_eq!(JobSpec::from_yaml(&job.to_string()), Ok(job)),
            Err(error) => prop_assert!(!error.to_string().contains(char::is_control)),
        }
    }
}
