//! Upstream's sentences, from its own unit tests.

use palisade_model::{compat::Compat, prepare::Prepared};
use palisade_policy::standards::{
    evaluator::{Evaluator, Options},
    level::{Level, LevelVersion, Version},
};

use crate::pod;

fn detail(id: &str, minor: u64, json: &str) -> String {
    let pod = Prepared::stored(pod(json), &Compat::kubernetes(37));
    let evaluator = Evaluator::default();
    let of_level = |level| {
        let outcome = evaluator.evaluate(LevelVersion::new(level, Version::v1(minor)), &pod);
        outcome
            .violations
            .into_iter()
            .find(|violation| violation.check == id)
            .map(|violation| violation.detail)
    };
    of_level(Level::Restricted).or_else(|| of_level(Level::Baseline)).unwrap_or_default()
}

fn containers(bodies: &[(&str, &str)]) -> String {
    let list: Vec<String> =
        bodies.iter().map(|(name, body)| format!(r#"{{"name":"{name}"{body}}}"#)).collect();
    format!(r#"{{"spec":{{"containers":[{}]}}}}"#, list.join(","))
}

fn context(body: &str) -> String {
    format!(r#","securityContext":{{{body}}}"#)
}

#[test]
fn details_are_upstreams() {
    let ports = |list: &[u16]| {
        let ports: Vec<String> = list.iter().map(|port| format!(r#"{{"hostPort":{port}}}"#)).collect();
        format!(r#","ports":[{}]"#, ports.join(","))
    };
    let caps =
        |add: &str, drop: &str| context(&format!(r#""capabilities":{{"add":[{add}],"drop":[{drop}]}}"#));
    let probe = |hosts: &[&str]| {
        let kinds = ["livenessProbe", "readinessProbe", "startupProbe"];
        let probe = |(kind, host)| format!(r#","{kind}":{{"httpGet":{{"host":"{host}"}}}}"#);
        kinds.iter().zip(hosts).map(probe).collect::<Vec<_>>().concat()
    };
    for (id, minor, json, expected) in [
        ("hostNamespaces", 0, r#"{"spec":{"hostNetwork":true,"hostPID":true,"hostIPC":true}}"#.to_owned(), "hostNetwork=true, hostPID=true, hostIPC=true"),
        ("hostPathVolumes", 0, r#"{"spec":{"volumes":[{"name":"a","hostPath":{}},{"name":"b","hostPath":{}}]}}"#.to_owned(), r#"volumes "a", "b""#),
        ("hostPorts", 0, containers(&[("a", ""), ("b", &ports(&[20]))]), r#"container "b" uses hostPort 20"#),
        ("hostPorts", 0, containers(&[("b", &ports(&[10, 20])), ("c", &ports(&[10, 30]))]), r#"containers "b", "c" use hostPorts 10, 20, 30"#),
        ("hostPorts", 0, containers(&[("b", &ports(&[80, 10080]))]), r#"container "b" uses hostPorts 10080, 80"#),
        ("hostProbesAndHostLifecycle", 34, containers(&[("a", &probe(&["localhost", "::1", "127.0.0.1"]))]), r#"container "a" uses probe or lifecycle hosts "127.0.0.1", "::1", "localhost""#),
        ("hostProbesAndHostLifecycle", 34, containers(&[("invalid2", &probe(&["b.com"])), ("invalid1", &probe(&["a.com"]))]), r#"containers "invalid1", "invalid2" use probe or lifecycle hosts "a.com", "b.com""#),
        ("privileged", 0, containers(&[("d", &context(r#""privileged":true"#)), ("e", &context(r#""privileged":true"#))]), r#"containers "d", "e" must not set securityContext.privileged=true"#),
        ("procMount", 0, containers(&[("d", &context(r#""procMount":"other""#)), ("e", &context(r#""procMount":"Unmasked""#))]), r#"containers "d", "e" must not set securityContext.procMount to "Unmasked", "other""#),
        ("capabilities_baseline", 0, containers(&[("a", &caps(r#""FOO","BAR""#, "")), ("b", &caps(r#""BAR","BAZ""#, ""))]), r#"containers "a", "b" must not include "BAR", "BAZ", "FOO" in securityContext.capabilities.add"#),
        ("capabilities_restricted", 22, containers(&[("a", &caps(r#""FOO","BAR""#, "")), ("b", &caps(r#""BAR","BAZ""#, r#""CHOWN""#)), ("c", &caps(r#""CHOWN""#, r#""ALL""#))]), r#"containers "a", "b" must set securityContext.capabilities.drop=["ALL"]; containers "a", "b", "c" must not include "BAR", "BAZ", "CHOWN", "FOO" in securityContext.capabilities.add"#),
        ("seLinuxOptions", 0, r#"{"spec":{"securityContext":{"seLinuxOptions":{"user":"u"}}}}"#.to_owned(), "pod set forbidden securityContext.seLinuxOptions: user may not be set"),
        ("seLinuxOptions", 0, r#"{"spec":{"securityContext":{"seLinuxOptions":{"type":"foo"}},"containers":[{"name":"e","securityContext":{"seLinuxOptions":{"type":"bar"}}},{"name":"f","securityContext":{"seLinuxOptions":{"user":"u"}}},{"name":"g","securityContext":{"seLinuxOptions":{"role":"r"}}}]}}"#.to_owned(), r#"pod and containers "e", "f", "g" set forbidden securityContext.seLinuxOptions: types "bar", "foo"; user may not be set; role may not be set"#),
        ("seccompProfile_baseline", 0, r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"unconfined"}}}"#.to_owned(), r#"forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined""#),
        ("seccompProfile_baseline", 0, r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"unconfined","container.seccomp.security.alpha.kubernetes.io/a":"unconfined","container.seccomp.security.alpha.kubernetes.io/b":"unknown","container.seccomp.security.alpha.kubernetes.io/ghost":"unknown"}},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}"#.to_owned(), r#"forbidden annotations container.seccomp.security.alpha.kubernetes.io/a="unconfined", container.seccomp.security.alpha.kubernetes.io/b="unknown", seccomp.security.alpha.kubernetes.io/pod="unconfined""#),
        ("seccompProfile_restricted", 19, r#"{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}},"containers":[{"name":"c","securityContext":{"seccompProfile":{"type":"Unconfined"}}},{"name":"d","securityContext":{"seccompProfile":{"type":"Unconfined"}}}]}}"#.to_owned(), r#"pod and containers "c", "d" must not set securityContext.seccompProfile.type to "Unconfined""#),
        ("seccompProfile_restricted", 19, containers(&[("a", ""), ("b", "")]), r#"pod or containers "a", "b" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#),
        ("windowsHostProcess", 0, r#"{"spec":{"securityContext":{"windowsOptions":{"hostProcess":true}},"containers":[{"name":"e","securityContext":{"windowsOptions":{"hostProcess":true}}},{"name":"f","securityContext":{"windowsOptions":{"hostProcess":true}}}]}}"#.to_owned(), r#"pod and containers "e", "f" must not set securityContext.windowsOptions.hostProcess=true"#),
        ("runAsNonRoot", 0, r#"{"spec":{"securityContext":{"runAsNonRoot":false},"containers":[{"name":"a","securityContext":{"runAsNonRoot":true}}]}}"#.to_owned(), "pod must not set securityContext.runAsNonRoot=false"),
        ("runAsNonRoot", 0, containers(&[("a", "")]), r#"pod or container "a" must set securityContext.runAsNonRoot=true"#),
        ("runAsUser", 23, containers(&[("c", &context(r#""runAsUser":0"#)), ("d", &context(r#""runAsUser":0"#))]), r#"containers "c", "d" must not set runAsUser=0"#),
        ("appArmorProfile", 0, containers(&[("foo", &context(r#""appArmorProfile":{"type":"Unconfined"}"#))]), r#"container "foo" must not set AppArmor profile type to "Unconfined""#),
        ("appArmorProfile", 0, r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/":"bogus","container.apparmor.security.beta.kubernetes.io/a":"","container.apparmor.security.beta.kubernetes.io/e":"unconfined","container.apparmor.security.beta.kubernetes.io/f":"unknown"}}}"#.to_owned(), r#"annotations must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/="bogus"", "container.apparmor.security.beta.kubernetes.io/e="unconfined"", "container.apparmor.security.beta.kubernetes.io/f="unknown"""#),
        ("restrictedVolumes", 0, r#"{"spec":{"volumes":[{"name":"volume0","fromTheFuture":{}}]}}"#.to_owned(), r#"volume "volume0" uses restricted volume type "unknown""#),
        ("sysctls", 0, r#"{"spec":{"securityContext":{"sysctls":[{"name":"b","value":"1"},{"name":"a","value":"1"},{"name":"b","value":"2"}]}}}"#.to_owned(), "b, a, b"),
    ] {
        assert_eq!(detail(id, minor, &json), expected, "{id} v1.{minor}");
    }
}

/// What the published fixtures leave out: both sides of every relaxation, and what looks at which pods.
#[test]
fn relaxations_begin_with_their_version_and_not_before() {
    let sysctl = |name: &str| {
        format!(r#"{{"spec":{{"securityContext":{{"sysctls":[{{"name":"{name}","value":"1"}}]}}}}}}"#)
    };
    let engine =
        r#"{"spec":{"securityContext":{"seLinuxOptions":{"type":"container_engine_t"}}}}"#.to_owned();
    let userns =
        r#"{"spec":{"hostUsers":false,"securityContext":{"runAsUser":0},"containers":[{"name":"c"}]}}"#
            .to_owned();
    let windows = r#"{"spec":{"os":{"name":"windows"},"containers":[{"name":"c"}]}}"#.to_owned();
    for (id, json, since) in [
        ("sysctls", sysctl("net.ipv4.ip_local_reserved_ports"), 27),
        ("sysctls", sysctl("net.ipv4.tcp_keepalive_time"), 29),
        ("sysctls", sysctl("net.ipv4.tcp_keepalive_probes"), 29),
        ("sysctls", sysctl("net.ipv4.tcp_rmem"), 32),
        ("sysctls", sysctl("net.ipv4.tcp_wmem"), 32),
        ("sysctls", sysctl("net.ipv4.tcp_notsent_lowat"), 37),
        ("seLinuxOptions", engine, 31),
        ("runAsNonRoot", userns.clone(), 35),
        ("runAsUser", userns, 35),
        ("allowPrivilegeEscalation", windows.clone(), 25),
        ("capabilities_restricted", windows.clone(), 25),
        ("seccompProfile_restricted", windows, 25),
    ] {
        assert_ne!(detail(id, since - 1, &json), "", "{id} before v1.{since}");
        assert_eq!(detail(id, since, &json), "", "{id} at v1.{since}");
    }
}

#[test]
fn overriding_has_its_consequences() {
    let windows = r#"{"spec":{"os":{"name":"windows"},"containers":[{"name":"c","securityContext":{"capabilities":{"add":["NET_RAW"]},"seccompProfile":{"type":"Unconfined"}}}]}}"#;
    let both = r#"{"spec":{"volumes":[{"name":"v","emptyDir":{},"hostPath":{}}]}}"#;
    let evaluator = Evaluator::default();
    let judge = |level, json: &str| {
        let pod = Prepared::stored(pod(json), &Compat::kubernetes(37));
        evaluator.evaluate(LevelVersion::new(level, Version::Latest), &pod).reasons()
    };
    assert_eq!(judge(Level::Baseline, windows), "non-default capabilities, seccompProfile");
    assert_eq!(judge(Level::Restricted, windows), "runAsNonRoot != true");
    assert_eq!(judge(Level::Baseline, both), "hostPath volumes");
    assert_eq!(judge(Level::Restricted, both), "");
}

#[test]
fn image_volumes_are_known_since_v1_33() {
    let pod =
        Prepared::stored(pod(r#"{"spec":{"volumes":[{"name":"v","image":{}}]}}"#), &Compat::kubernetes(37));
    let policy = LevelVersion::new(Level::Restricted, Version::v1(20));
    let judge = |knows_image_volumes| {
        let options = Options { knows_image_volumes, ..Options::default() };
        Evaluator::new(options).evaluate(policy, &pod).details()
    };
    assert_eq!(judge(true), "");
    assert_eq!(judge(false), r#"restricted volume types (volume "v" uses restricted volume type "unknown")"#);
}
