//! `palisade profile`.

use palisade_testkit::docker_registry::{Access, DockerRegistry};

use crate::support::{Project, Run};

const PROFILE: &str = r#"{
  "defaultAction": "SCMP_ACT_ERRNO",
  "architectures": ["SCMP_ARCH_X86_64"],
  "syscalls": [
    {"names": ["read", "write", "execve", "exit_group"], "action": "SCMP_ACT_ALLOW"}
  ]
}
"#;

#[test]
fn lint_points_into_the_file() {
    let project = Project::new();
    let bad = PROFILE
        .replace("\"write\"", "\"wrote\"")
        .replace("SCMP_ACT_ALLOW", "SCMP_ACT_ALOW")
        .replace("SCMP_ARCH_X86_64", "X86_64");
    project.file("good.json", PROFILE).file("bad.json", bad);
    let run = project.run(&["profile", "lint", "good.json"]);
    assert_eq!(run.to_string(), "exit status: 0");
    insta::assert_snapshot!(project.run(&["profile", "lint", "good.json", "bad.json"]), @r#"
    error[profile/unknown-architecture]: "X86_64" is not an architecture
     --> bad.json:3:21
      |
    3 |   "architectures": ["X86_64"],
      |                     ^^^^^^^^
      = because: a container with this profile does not start

    warning[profile/unknown-syscall]: there is no system call wrote: runtimes ignore it
     --> bad.json:5:24
      |
    5 |     {"names": ["read", "wrote", "execve", "exit_group"], "action": "SCMP_ACT_ALOW"}
      |                        ^^^^^^^
      = because: the runtime accepts this and ignores it
      = help: did you mean write?

    error[profile/unknown-action]: "SCMP_ACT_ALOW" is not an action: no container can start with it
     --> bad.json:5:68
      |
    5 |     {"names": ["read", "wrote", "execve", "exit_group"], "action": "SCMP_ACT_ALOW"}
      |                                                                    ^^^^^^^^^^^^^^^
      = because: a container with this profile does not start
      = help: one of SCMP_ACT_ALLOW, SCMP_ACT_ERRNO, SCMP_ACT_KILL, SCMP_ACT_KILL_PROCESS, SCMP_ACT_KILL_THREAD, SCMP_ACT_LOG, SCMP_ACT_NOTIFY, SCMP_ACT_TRACE, SCMP_ACT_TRAP

    exit status: 1
    "#);
}

#[test]
fn lint_reports_what_a_kernel_lacks() {
    let project = Project::new();
    project.file("p.json", PROFILE.replace("SCMP_ACT_ERRNO", "SCMP_ACT_KILL_PROCESS"));
    assert_eq!(project.run(&["profile", "lint", "p.json", "--kernel", "5.10"]).status, 0);
    let run = project.run(&["profile", "lint", "p.json", "--kernel", "4.9"]);
    assert!(run.stdout.contains("SCMP_ACT_KILL_PROCESS"), "{run}");
    assert_eq!(project.run(&["profile", "lint", "p.json", "--kernel", "new"]).status, 2);
}

#[test]
fn lint_reads_config_maps() {
    let project = Project::new();
    let profile = PROFILE.replace("\"write\"", "\"wrote\"").replace('\n', "\n    ");
    project.file("cm.yaml", format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  note: text\n  p.json: |\n    {profile}\n"));
    insta::assert_snapshot!(project.run(&["profile", "lint", "cm.yaml"]), @r#"
    warning[profile/unknown-syscall]: there is no system call wrote: runtimes ignore it
      --> cm.yaml:11:28
       |
    11 |         {"names": ["read", "wrote", "execve", "exit_group"], "action": "SCMP_ACT_ALLOW"}
       |                            ^^^^^^^
       = because: the runtime accepts this and ignores it
       = help: did you mean write?

    exit status: 0
    "#);
}

#[test]
fn lint_reports_files_without_a_profile() {
    let project = Project::new();
    project
        .file("a.json", "{\"defaultAction\": \"SCMP_ACT_ERRNO\",}")
        .file("b.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n");
    let run = project.run(&["profile", "lint", "a.json"]);
    assert_eq!((run.codes(), run.status), (vec!["profile/not-json".to_owned()], 2), "{run}");
    let run = project.run(&["profile", "lint", "b.yaml"]);
    assert_eq!((run.codes(), run.status), (vec!["profile/none".to_owned()], 2), "{run}");
    assert_eq!(project.run(&["profile", "lint", "none.json"]).status, 2);
}

#[test]
fn diff_reports_what_is_gained_and_lost() {
    let project = Project::new();
    project.file("old.json", PROFILE).file("new.json", PROFILE.replace("\"write\"", "\"mount\", \"ptrace\""));
    insta::assert_snapshot!(project.run(&["profile", "diff", "old.json", "new.json"]), @r#"
    + mount: mount() on SCMP_ARCH_X86_64: SCMP_ACT_ERRNO 1 -> SCMP_ACT_ALLOW
    + ptrace: ptrace() on SCMP_ARCH_X86_64: SCMP_ACT_ERRNO 1 -> SCMP_ACT_ALLOW
    - write: write() on SCMP_ARCH_X86_64: SCMP_ACT_ALLOW -> SCMP_ACT_ERRNO 1
    2 gained, 1 lost, 0 changed
    exit status: 1
    "#);
    let run = project.run(&["profile", "diff", "old.json", "new.json", "--json"]);
    assert_eq!(run.json()["lost"].to_string(), r#"["write"]"#);
    assert_eq!(project.run(&["profile", "diff", "old.json", "old.json"]).status, 0);
    assert_eq!(project.run(&["profile", "diff", "old.json", "none.json"]).status, 2);
}

#[test]
fn hash_is_that_of_sha256sum() {
    let project = Project::new();
    project.file("empty", "").file("p.json", PROFILE);
    let run = project.run(&["profile", "hash", "empty"]);
    assert_eq!(run.stdout, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n");
    let whole = project.run(&["profile", "hash", "p.json"]).stdout;
    let indented = PROFILE.trim_end().replace('\n', "\n    ");
    project.file("cm.yaml", format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  p.json: |\n    {indented}\n"));
    let inside = project.run(&["profile", "hash", "cm.yaml"]).stdout;
    assert_eq!(inside.split_whitespace().next(), whole.split_whitespace().next(), "{inside}{whole}");
    assert!(inside.ends_with("  cm.yaml/p.json\n"), "{inside}");
}

#[test]
fn diff_compares_meaning_and_shows_an_example_call() {
    let project = Project::new();
    let rule = |args: &str| {
        format!(
            r#"{{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":[{args}]}}]}}"#
        )
    };
    let masked = r#"{"index":0,"value":2114060288,"op":"SCMP_CMP_MASKED_EQ"}"#;
    project
        .file("a.json", rule(masked))
        .file(
            "same.json",
            rule(&masked.replace("\"op\"", "\"valueTwo\":0,\"op\""))
                .replace("\"syscalls\"", "\"defaultErrnoRet\":1,\"syscalls\""),
        )
        .file("errno.json", rule(masked).replace("\"syscalls\"", "\"defaultErrnoRet\":38,\"syscalls\""))
        .file("wide.json", rule(""))
        .file(
            "x86.json",
            rule(masked).replace("\"syscalls\"", "\"architectures\":[\"SCMP_ARCH_X86\"],\"syscalls\""),
        )
        .file("twice.json", r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultAction":"SCMP_ACT_ERRNO"}"#);
    assert_eq!(project.run(&["profile", "diff", "a.json", "same.json"]).status, 0);
    let all = ["errno.json", "wide.json", "x86.json", "twice.json"]
        .map(|other| project.run(&["profile", "diff", "a.json", other]).to_string());
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    ! default action: SCMP_ACT_ERRNO 1 -> SCMP_ACT_ERRNO 38, such as for _sysctl() on SCMP_ARCH_X86_64
    ~ clone: clone(0x20000) on SCMP_ARCH_X86_64: SCMP_ACT_ERRNO 1 -> SCMP_ACT_ERRNO 38
    0 gained, 0 lost, 1 changed
    exit status: 1

    + clone: clone(0x20000) on SCMP_ARCH_X86_64: SCMP_ACT_ERRNO 1 -> SCMP_ACT_ALLOW
    1 gained, 0 lost, 0 changed
    exit status: 1

    ! SCMP_ARCH_X86: SCMP_ACT_KILL_THREAD -> SCMP_ACT_ERRNO 1, such as for _llseek() on SCMP_ARCH_X86
    0 gained, 0 lost, 0 changed
    exit status: 1

    error: twice.json sets the key "defaultAction" twice, and readers disagree about which one counts
    exit status: 2
    "#);
    let run = project.run(&["profile", "diff", "a.json", "wide.json", "--json"]);
    assert_eq!(run.json()["equal"], false);
    assert_eq!(run.json()["examples"][0]["arguments"][0], "0x20000");
}

#[test]
fn lint_reports_profiles_that_confine_nothing_or_are_ambiguous() {
    let project = Project::new();
    project
        .file("log.json", r#"{"defaultAction":"SCMP_ACT_LOG"}"#)
        .file("twice.json", "{\n  \"defaultAction\": \"SCMP_ACT_ERRNO\",\n  \"defaultAction\": \"SCMP_ACT_ALLOW\"\n}\n")
        .file(
            "docker.json",
            r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["mount","execve","exit_group"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}]}"#,
        )
        .file(
            "spo.yaml",
            "apiVersion: security-profiles-operator.x-k8s.io/v1beta1\nkind: SeccompProfile\nmetadata: {name: audit}\nspec:\n  defaultAction: SCMP_ACT_LOG\n  baseProfileName: runc-v1.3\n  syscalls:\n    - names: [mkdri]\n      action: SCMP_ACT_ERRNO\n",
        );
    insta::assert_snapshot!(project.run(&["profile", "lint", "log.json", "twice.json", "docker.json", "spo.yaml"]), @r#"
    error[profile/confines-nothing]: no system call is denied: the profile confines nothing
     --> log.json:1:18
      |
    1 | {"defaultAction":"SCMP_ACT_LOG"}
      |                  ^^^^^^^^^^^^^^
      = because: a container with this profile is not confined

    error[profile/duplicate-key]: the key "defaultAction" is set twice, and runtimes disagree about which one applies
     --> twice.json:3:3
      |
    2 |   "defaultAction": "SCMP_ACT_ERRNO",
      |   --------------- first set here
    3 |   "defaultAction": "SCMP_ACT_ALLOW"
      |   ^^^^^^^^^^^^^^^
      = because: the meaning of the profile is ambiguous, and Palisade does not use it
      = help: remove one of them

    error[profile/docker-only]: includes is Docker's: other runtimes drop it, and the rule applies to every container
     --> docker.json:1:114
      |
    1 | {"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["mount","execve","exit_group"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}]}
      |                                                                                                                  ^^^^^^^^^^
      = because: a container with this profile may do more than the rule allows
      = help: write a profile of its own for each case

    error[profile/confines-nothing]: no system call is denied: the profile confines nothing
     --> spo.yaml:5:18
      |
    5 |   defaultAction: SCMP_ACT_LOG
      |                  ^^^^^^^^^^^^
      = because: a container with this profile is not confined

    warning[profile/base-profile]: the operator adds the rules of the base profile "runc-v1.3", which are not checked here
     --> spo.yaml:6:20
      |
    6 |   baseProfileName: runc-v1.3
      |                    ^^^^^^^^^

    warning[profile/unknown-syscall]: there is no system call mkdri: runtimes ignore it
     --> spo.yaml:8:15
      |
    8 |     - names: [mkdri]
      |               ^^^^^
      = because: the runtime accepts this and ignores it
      = help: did you mean mkdir?

    exit status: 1
    "#);
}

const DENY_ALG: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
  {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 97, "args": [{"index": 0, "op": "SCMP_CMP_EQ", "value": 38}]}]}"#;

#[test]
fn an_intersection_is_printed_as_the_smallest_document() {
    let project = Project::new();
    project.file("mine.json", PROFILE).file("deny.json", DENY_ALG);
    insta::assert_snapshot!(project.run(&["profile", "intersect", "mine.json", "deny.json"]), @r#"
    {
      "defaultAction": "SCMP_ACT_ERRNO",
      "syscalls": [
        {
          "action": "SCMP_ACT_ALLOW",
          "names": [
            "execve",
            "exit_group",
            "read",
            "write"
          ]
        }
      ]
    }
    exit status: 0
    "#);
    insta::assert_snapshot!(project.run(&["profile", "merge", "mine.json", "deny.json"]), @r#"
    {
      "architectures": [
        "SCMP_ARCH_X86_64"
      ],
      "defaultAction": "SCMP_ACT_ALLOW",
      "syscalls": [
        {
          "action": "SCMP_ACT_ERRNO",
          "args": [
            {
              "index": 0,
              "op": "SCMP_CMP_EQ",
              "value": 38
            }
          ],
          "names": [
            "socket"
          ]
        }
      ]
    }
    exit status: 0
    "#);
    insta::assert_snapshot!(project.run(&["profile", "minimize", "deny.json"]), @r#"
    {
      "defaultAction": "SCMP_ACT_ALLOW",
      "syscalls": [
        {
          "action": "SCMP_ACT_ERRNO",
          "args": [
            {
              "index": 0,
              "op": "SCMP_CMP_EQ",
              "value": 38
            }
          ],
          "errnoRet": 97,
          "names": [
            "socket"
          ]
        }
      ]
    }
    exit status: 0
    "#);
}

#[test]
fn a_subset_has_no_counterexample() {
    let project = Project::new();
    project.file("mine.json", PROFILE).file("deny.json", DENY_ALG);
    insta::assert_snapshot!(project.run(&["profile", "subset", "mine.json", "deny.json"]), @r#"
    mine.json allows nothing that deny.json does not
    exit status: 0
    "#);
    insta::assert_snapshot!(project.run(&["profile", "subset", "deny.json", "mine.json"]), @r#"
    socket() on SCMP_ARCH_X86_64: SCMP_ACT_ALLOW in deny.json, SCMP_ACT_ERRNO 1 in mine.json
    exit status: 1
    "#);
    let defaults = ["runtime-default:containerd@2.3.0", "runtime-default:containerd@2.3.1"];
    insta::assert_snapshot!(project.run(&["profile", "subset", defaults[0], defaults[1]]), @r#"
    socket(0x26) on SCMP_ARCH_X86_64: SCMP_ACT_ALLOW in runtime-default:containerd@2.3.0, SCMP_ACT_ERRNO 1 in runtime-default:containerd@2.3.1
    exit status: 1
    "#);
    let reverse = project.run(&["profile", "subset", defaults[1], defaults[0]]);
    assert_eq!(reverse.status, 0, "{reverse}");
    let admin =
        project.run(&["profile", "explain-call", defaults[1], "mount", "--capabilities", "sys_admin"]);
    assert!(admin.stdout.contains("SCMP_ACT_ALLOW"), "{admin}");
}

#[test]
fn a_tenants_allow_all_allows_no_more_than_the_default() {
    let project = Project::new();
    project.file("all.json", r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]}"#);
    for runtime in ["runtime-default:containerd@1.6.20", "runtime-default:cri-o", "runtime-default:docker@29"]
    {
        let run = project.run(&["profile", "intersect", "all.json", runtime]);
        assert_eq!(run.status, 0, "{run}");
        project.file("applied.json", &run.stdout);
        let run = project.run(&["profile", "subset", "applied.json", runtime]);
        assert_eq!(run.status, 0, "{run}");
    }
}

#[test]
fn a_call_is_explained_for_given_arguments_or_for_all() {
    let project = Project::new();
    insta::assert_snapshot!(project.run(&["profile", "explain-call", "runtime-default:containerd@2.3", "clone"]), @r#"
    clone on SCMP_ARCH_X86_64:
      argument 0 & 0x7e020000 == 0x0: SCMP_ACT_ALLOW
      otherwise: SCMP_ACT_ERRNO 1
    clone on SCMP_ARCH_X32:
      argument 0 & 0x7e020000 == 0x0: SCMP_ACT_ALLOW
      otherwise: SCMP_ACT_ERRNO 1
    clone on SCMP_ARCH_X86:
      argument 0 & 0x7e020000 == 0x0: SCMP_ACT_ALLOW
      otherwise: SCMP_ACT_ERRNO 1
    exit status: 0
    "#);
    insta::assert_snapshot!(project.run(&["profile", "explain-call", "runtime-default:containerd@2.3", "clone", "0x10000000"]), @r#"
    clone(0x10000000) on SCMP_ARCH_X86_64: SCMP_ACT_ERRNO 1
    clone(0x10000000) on SCMP_ARCH_X32: SCMP_ACT_ERRNO 1
    clone(0x10000000) on SCMP_ARCH_X86: SCMP_ACT_ERRNO 1
    exit status: 0
    "#);
    insta::assert_snapshot!(project.run(&["profile", "explain-call", "runtime-default:containerd@2.3", "personality", "-1"]), @r#"
    personality(0xffffffffffffffff) on SCMP_ARCH_X86_64: SCMP_ACT_ERRNO 1
    personality(0xffffffffffffffff) on SCMP_ARCH_X32: SCMP_ACT_ALLOW
    personality(0xffffffffffffffff) on SCMP_ARCH_X86: SCMP_ACT_ALLOW
    exit status: 0
    "#);
}

#[test]
fn docker_conditions_are_dropped_unless_they_are_wanted() {
    let project = Project::new();
    project.file("docker.json", r#"{"defaultAction": "SCMP_ACT_ERRNO", "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X32"]}],
        "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}}]}"#);
    insta::assert_snapshot!(project.run(&["profile", "minimize", "docker.json"]), @r#"
    {
      "defaultAction": "SCMP_ACT_ERRNO",
      "syscalls": [
        {
          "action": "SCMP_ACT_ALLOW",
          "names": [
            "mount"
          ]
        }
      ]
    }
    warning: docker.json: includes, excludes, archMap and name are dropped, as containerd does; use --docker to evaluate them
    exit status: 0
    "#);
    insta::assert_snapshot!(project.run(&["profile", "minimize", "docker.json", "--docker"]), @r#"
    {
      "architectures": [
        "SCMP_ARCH_X32",
        "SCMP_ARCH_X86_64"
      ],
      "defaultAction": "SCMP_ACT_ERRNO"
    }
    exit status: 0
    "#);
    let run = project.run(&["profile", "minimize", "docker.json", "--docker", "--capabilities", "SYS_ADMIN"]);
    assert!(run.stdout.contains("mount"), "{run}");
}

#[test]
fn what_cannot_be_combined_is_reported_and_printed_nowhere() {
    let project = Project::new();
    project
        .file("mine.json", PROFILE)
        .file("none.json", r#"{"foo": 1}"#)
        .file("narrow.json", PROFILE.replace("SCMP_ARCH_X86_64", "SCMP_ARCH_X86").replace("\"read\"", "\"open\""))
        .file("twice.json", r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "op": "SCMP_CMP_LE", "value": 5}]},
            {"names": ["clone"], "action": "SCMP_ACT_KILL", "args": [{"index": 1, "op": "SCMP_CMP_EQ", "value": 3}]}]}"#);
    for (arguments, status) in [
        (&["intersect", "mine.json", "none.json"][..], 2),
        (&["intersect", "mine.json", "missing.json"], 2),
        (&["merge", "mine.json", "runtime-default:podman"], 2),
        (&["merge", "mine.json", "runtime-default:containerd@0.1"], 2),
        (&["merge", "mine.json", "narrow.json"], 3),
        (&["minimize", "twice.json"], 3),
        (&["merge", "mine.json", "twice.json"], 3),
        (&["explain-call", "mine.json", "opne"], 2),
        (&["explain-call", "mine.json", "open", "x"], 2),
        (&["explain-call", "mine.json", "open", "--architecture", "arm64"], 2),
        (&["explain-call", "mine.json", "open", "--architecture", "vax"], 2),
        (&["subset", "mine.json", "mine.json", "--capabilities", "SYS ADMIN"], 2),
    ] {
        let run = project.run(&[&["profile"], arguments].concat());
        assert_eq!(run.status, status, "{arguments:?}: {run}");
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
    insta::assert_snapshot!(project.run(&["profile", "intersect", "mine.json", "none.json"]), @r#"
    error: none.json: has neither defaultAction nor syscalls: a runtime applies no profile at all
    exit status: 2
    "#);
    insta::assert_snapshot!(project.run(&["profile", "merge", "mine.json", "narrow.json"]), @r#"
    error: no profile can express the result: read() on SCMP_ARCH_X86 needs a rule of its own, and the rules of a profile apply to every architecture that it lists
    exit status: 3
    "#);
    let warned = project.run(&["profile", "intersect", "mine.json", "twice.json"]);
    assert!(warned.status == 0 && warned.stderr.contains("the strictest applies"), "{warned}");
}

#[test]
fn a_journal_of_a_recorder_that_was_killed_is_a_lossy_profile() {
    let project = Project::new();
    let journal = [
        r#"{"container":"web","machine":"SCMP_ARCH_X86_64","base":{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["listen","read","socket","unlink","write"],"action":"SCMP_ACT_ALLOW"}]}}"#,
        r#"{"container":"web","call":"socket","architecture":"SCMP_ARCH_X86_64","argument":2,"phase":"start"}"#,
        r#"{"container":"web","call":"listen","architecture":"SCMP_ARCH_X86_64","phase":"start"}"#,
        r#"{"container":"web","call":"unl"#,
    ];
    project.file("web.journal", journal.join("\n")).file("empty.journal", "");
    for (file, expected) in [
        (
            "web.journal",
            &[
                r#""listen""#,
                "recorded 2 system calls of web in the phases start",
                "the recording is lossy: the recorder ended before the containers did",
                "exit status: 1",
            ][..],
        ),
        ("empty.journal", &["empty.journal: the journal is empty", "exit status: 2"]),
    ] {
        let run = project.run(&["profile", "recorded", file]).to_string();
        for part in expected {
            assert!(run.contains(part), "{file}: {part}: {run}");
        }
        assert!(!run.contains("unlink"), "{run}");
    }
}

/// Runs with the credentials of a registry in `config.json`.
fn at_registry(project: &Project, args: &[&str]) -> Run {
    let config = project.path("config.json").display().to_string();
    project.run(&[args, &["--plain-http", "--registry-config", &config]].concat())
}

#[test]
fn push_prints_the_reference_with_which_pull_prints_the_profile() {
    let registry = DockerRegistry::start(Access::WithPassword);
    let project = Project::new();
    project.file("p.json", PROFILE).file("config.json", registry.docker_config()).file("empty.json", "{}");
    let target = format!("oci://{}/team/web:v1", registry.name);
    let pushed = at_registry(&project, &["profile", "push", "p.json", &target]);
    assert_eq!(pushed.status, 0, "{pushed}");
    let reference = pushed.stdout.trim();
    assert!(reference.starts_with(&format!("oci://{}/team/web@sha256:", registry.name)), "{reference}");
    let pulled = at_registry(&project, &["profile", "pull", reference]);
    assert_eq!((pulled.status, pulled.stdout.as_str()), (0, PROFILE), "{pulled}");

    // Without credentials, and with what does not exist.
    let shown = |run: Run| run.to_string().replace(&registry.name, "127.0.0.1:5000");
    let empty = project.path("empty.json").display().to_string();
    let run = project.run(&["profile", "pull", reference, "--plain-http", "--registry-config", &empty]);
    let text = shown(run);
    assert!(
        text.contains("127.0.0.1:5000 denies access to team/web: there are no credentials for it"),
        "{text}"
    );
    assert!(text.ends_with("exit status: 3"), "{text}");
    let absent = format!("{}/team/web@sha256:{}", registry.name, "0".repeat(64));
    let text = shown(at_registry(&project, &["profile", "pull", &absent]));
    assert!(text.contains("is not in the registry") && text.ends_with("exit status: 3"), "{text}");
}

#[test]
fn what_cannot_be_a_profile_of_a_registry_is_refused_without_the_network() {
    let project = Project::new();
    let many = format!(
        r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{}]}}"#,
        vec![r#"{"names":["mkdir"],"action":"SCMP_ACT_ERRNO"}"#; 129].join(",")
    );
    project
        .file("p.json", PROFILE)
        .file("all.json", r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#)
        .file("listener.json", PROFILE.replacen('{', r#"{"listenerPath":"/run/x.sock","#, 1))
        .file("many.json", many);
    let target = "registry.invalid/team/web";
    let digest = format!("{target}@sha256:{}", "0".repeat(64));
    for (args, expected) in [
        (&["push", "all.json", target][..], "all.json confines nothing: no system call is denied"),
        (&["push", "listener.json", target], "listener.json leaves system calls to a listener: listenerPath"),
        (&["push", "many.json", target], "many.json has 129 entries in syscalls, more than the 128"),
        (&["push", "p.json", &digest], "must have a repository"),
        (&["push", "p.json", "web"], "must begin with the registry"),
        (&["pull", target], "must be pinned by digest"),
        (&["pull", "registry.invalid/team/web:v1"], "must be pinned by digest, not by tag"),
        (&["pull", &digest, "--plain-http"], "--plain-http: registry.invalid is not on a loopback address"),
        (&["pull", &digest, "--registry-config", "none.json"], "none.json: No such file or directory"),
    ] {
        let run = project.run(&[&["profile"], args].concat());
        assert!(run.status == 2 && run.stderr.contains(expected), "{args:?}: {run}");
    }
}

/// `profile lint` with a parser that is this script; without one, none is installed.
fn lint_with(project: &Project, file: &str, parser: Option<&str>) -> Run {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = project.path("parser");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("apparmor_parser");
    if let Some(script) = parser {
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path =
        if parser.is_some() { format!("{}:/usr/bin:/bin", folder.display()) } else { "/nowhere".to_owned() };
    Run::of(project.command().args(["profile", "lint", file]).env("PATH", path))
}

#[test]
fn lint_checks_apparmor_with_its_parser() {
    let project = Project::new();
    project.file("web", "#include <tunables/global>\nprofile web {\n  file\n}\n");
    let reject = "cat > /dev/null; echo 'AppArmor parser error at line 3: syntax error, unexpected TOK_CLOSE' >&2; exit 1";
    let run = lint_with(&project, "web", Some(reject));
    assert_eq!((run.codes(), run.status), (vec!["profile/apparmor-rejected".to_owned()], 1), "{run}");
    assert!(
        run.to_string().contains("--> web:3:1") && run.to_string().contains("unexpected TOK_CLOSE"),
        "{run}"
    );
    let accept = "test \"$*\" = '--skip-kernel-load --skip-cache --quiet' && cat > /dev/null";
    assert_eq!(lint_with(&project, "web", Some(accept)).to_string(), "exit status: 0");
    let run = lint_with(&project, "web", None);
    assert_eq!((run.codes(), run.status), (vec!["profile/apparmor-parser".to_owned()], 2), "{run}");
    assert!(run.to_string().contains("not checked: apparmor_parser is not installed"), "{run}");
}

#[test]
fn lint_reads_apparmor_profiles_of_namespaces_as_nodes_do() {
    let project = Project::new();
    let manifest = |rules: &str| {
        format!(
            "apiVersion: palisade.dev/v1alpha1\nkind: AppArmorProfile\nmetadata: {{name: web}}\nspec:\n  rules: |\n    file,\n    {rules}\n"
        )
    };
    project.file("bad.yaml", manifest("/usr/bin/sh ux,")).file("good.yaml", manifest("/usr/bin/sh ix,"));
    let accept = Some("cat > /dev/null");
    assert_eq!(lint_with(&project, "good.yaml", accept).to_string(), "exit status: 0");
    let run = lint_with(&project, "bad.yaml", accept);
    assert_eq!((run.codes(), run.status), (vec!["profile/apparmor-rules".to_owned()], 1), "{run}");
    assert!(run.to_string().contains("--> bad.yaml:7:"), "{run}");
    assert!(
        run.to_string().contains("line 2: permissions \"ux\": a program could leave the profile"),
        "{run}"
    );
    let run = lint_with(&project, "good.yaml", None);
    assert_eq!((run.codes(), run.status), (vec!["profile/apparmor-not-compiled".to_owned()], 0), "{run}");
}
