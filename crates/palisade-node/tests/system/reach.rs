//! What containers can do, from the filters that the kernel has, against what happens when they try.

use std::{fs, time::Duration};

use palisade_model::profile::call_pattern::CallPattern;
use palisade_node::reach::{Prober, Verdict, running_containers};
use palisade_testkit::programs::SocketCall;
use serde_json::{Value, json};

use crate::lab::{Lab, designs, sleeper};

/// Allows everything but `socket` with one family, and io_uring, which can make sockets as well.
fn without_family(operator: &str, value: u64) -> String {
    json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"], "syscalls": [
        {"names": ["socket"], "action": "SCMP_ACT_ERRNO",
            "args": [{"index": 0, "op": operator, "value": value, "valueTwo": 38}]},
        {"names": ["socketcall", "io_uring_setup"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_container_can_do_is_what_happens_when_it_tries() {
    let lab = Lab::new(designs());
    let masked = without_family("SCMP_CMP_MASKED_EQ", 0xffff_ffff);
    let multiplexed = masked.replace("\"socketcall\",", "");
    for (name, profile) in [
        ("masked.json", &masked),
        ("naive.json", &without_family("SCMP_CMP_EQ", 38)),
        ("multiplexed.json", &multiplexed),
    ] {
        fs::write(lab.root.join("seccomp").join(name), profile).unwrap();
    }
    let localhost = |name: &str| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": name}});
    let patterns = [
        CallPattern::parse("socket(AF_ALG, *, *)").unwrap(),
        CallPattern::parse("unshare(&CLONE_NEWUSER)").unwrap(),
    ];
    let prober = Prober::new(&lab.node.config.proc, None);
    let no = 97;
    for (name, context, privileged, tried, can, can_unshare) in [
        (
            "open",
            json!({"seccompProfile": {"type": "Unconfined"}}),
            false,
            [no, no, no],
            "socket(0x26) on SCMP_ARCH_X86_64",
            true,
        ),
        ("masked", localhost("masked.json"), false, [1, 1, 38], "", true),
        (
            "naive",
            localhost("naive.json"),
            false,
            [1, no, 38],
            "socket(0x100000026) on SCMP_ARCH_X86_64",
            true,
        ),
        ("multiplexed", localhost("multiplexed.json"), false, [1, 1, 1], "", true),
        (
            "privileged",
            localhost("masked.json"),
            true,
            [no, no, no],
            "socket(0x26) on SCMP_ARCH_X86_64",
            true,
        ),
        (
            "default",
            json!({"seccompProfile": {"type": "RuntimeDefault"}}),
            false,
            [no, no, no],
            "socket(0x26) on SCMP_ARCH_X86_64",
            false,
        ),
    ] {
        let pod = lab.apply(sleeper(name, context, json!({"privileged": privileged})));
        lab.until_running(&pod).await;
        let containers = running_containers(&lab.node.runtime).await.unwrap();
        let container = containers.iter().find(|found| found.pod == pod.key).unwrap();
        let verdicts = prober.probe(container, &patterns).await;
        let [socket, unshare] = verdicts.as_slice() else { panic!("{name}: {verdicts:?}") };
        match socket {
            Verdict::Can { call, .. } => assert_eq!(call, can, "{name}"),
            Verdict::Cannot { .. } => assert_eq!(can, "", "{name}"),
            Verdict::Undecided { reason } => panic!("{name}: {reason}"),
        }
        for (call, expected) in
            [SocketCall::Plain, SocketCall::UpperBit, SocketCall::Multiplexed].into_iter().zip(tried)
        {
            let (code, text) = lab.exec(&pod, "c", &call.command()).await;
            assert_eq!(code, expected, "{name} {call:?}: {text}");
        }
        // The twin: a call that the same filters treat otherwise.
        assert_eq!(matches!(unshare, Verdict::Can { .. }), can_unshare, "{name}: {unshare:?}");
        let (code, _) = lab.exec(&pod, "c", "unshare -U true").await;
        assert_eq!(code == 0, can_unshare, "{name}");
        // Once more, from memory: nothing is stopped again, and nothing changes.
        assert_eq!(prober.probe(container, &patterns).await, verdicts, "{name}");
        lab.delete(&pod).await;
        let ended = prober.probe(container, &patterns).await;
        assert!(
            ended.iter().all(|verdict| matches!(verdict, Verdict::Undecided { .. })),
            "{name}: {ended:?}"
        );
    }
    prober.forget_ended();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_goes_on_while_its_filters_are_read() {
    let lab = Lab::new(designs());
    // Counts as fast as it can, in several processes.
    let script = "for n in 1 2 3; do (while :; do echo x >> /tmp/count; done) & done; sleep 600";
    let context = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let pod = lab.apply(crate::lab::pod("busy", context, json!({}), script));
    lab.until_running(&pod).await;
    let containers = running_containers(&lab.node.runtime).await.unwrap();
    let container = containers.iter().find(|found| found.pod == pod.key).unwrap();
    let pattern = [CallPattern::parse("ptrace").unwrap(), CallPattern::parse("keyctl(*, *)").unwrap()];
    for round in 0..20 {
        // Without memory: every thread is stopped each time.
        let verdicts = Prober::new(&lab.node.config.proc, None).probe(container, &pattern).await;
        assert!(matches!(verdicts[1], Verdict::Cannot { .. }), "{round}: {verdicts:?}");
    }
    let count =
        || async { lab.exec(&pod, "c", "cat /tmp/count | grep -c x").await.1.trim().parse::<u64>().unwrap() };
    let before = count().await;
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while count().await <= before {
        assert!(tokio::time::Instant::now() < deadline, "it no longer runs");
    }
    let status: Value = lab.status(&pod);
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0, "{status}");
}
