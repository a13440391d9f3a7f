//! What `palisade install` prints: read by kubectl and an API server, judged by our own standards, parsed by our own command line.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Parser as _;
use palisade_apiserver::Server;
use palisade_cli::{command_line::Cli, install::chart_templates};
use palisade_model::compat::Compat;
use palisade_yaml::{Limits, parse};
use serde_json::Value;

use crate::support::{Project, kubectl};

/// The objects that `palisade install` prints.
pub(crate) fn installed(arguments: &[&str]) -> (String, Vec<Value>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    let output = without_cluster(command.arg("install").args(arguments)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let parsed = parse(&text, &Limits::default());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let objects: Vec<Value> =
        parsed.documents.iter().map(|document| document.root().to_json().unwrap()).collect();
    (text, objects)
}

/// On a machine with a kubeconfig, the release of its cluster would decide.
fn without_cluster(command: &mut Command) -> &mut Command {
    command.env("KUBECONFIG", "/nonexistent/kubeconfig").env_remove("KUBERNETES_SERVICE_HOST")
}

fn names(objects: &[Value]) -> Vec<String> {
    let word = |object: &Value, pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    objects
        .iter()
        .map(|object| format!("{}/{}", word(object, "/kind"), word(object, "/metadata/name")))
        .collect()
}

#[test]
fn every_object_is_printed_once() {
    let (_, objects) = installed(&[]);
    let names = names(&objects);
    insta::assert_snapshot!(names.join("\n"), @r"
    Namespace/palisade-system
    ResourceQuota/palisade-critical-pods
    CustomResourceDefinition/apparmorprofiles.palisade.dev
    CustomResourceDefinition/noderecordings.palisade.dev
    CustomResourceDefinition/nodesecurityreports.palisade.dev
    CustomResourceDefinition/profilepolicies.palisade.dev
    CustomResourceDefinition/profilerecordings.palisade.dev
    CustomResourceDefinition/publishedprofiles.palisade.dev
    CustomResourceDefinition/securityexceptions.palisade.dev
    CustomResourceDefinition/syscallguards.palisade.dev
    ServiceAccount/palisade-webhook
    ClusterRole/palisade-webhook
    ClusterRoleBinding/palisade-webhook
    Role/palisade-webhook
    RoleBinding/palisade-webhook
    Role/palisade-webhook-configuration
    RoleBinding/palisade-webhook-configuration
    Service/palisade-webhook
    PodDisruptionBudget/palisade-webhook
    Deployment/palisade-webhook
    ServiceAccount/palisade-controller
    ClusterRole/palisade-controller
    ClusterRoleBinding/palisade-controller
    Role/palisade-controller
    RoleBinding/palisade-controller
    Deployment/palisade-controller
    ServiceAccount/palisade-node
    ClusterRole/palisade-node
    ClusterRoleBinding/palisade-node
    DaemonSet/palisade-node
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_is_that_of_the_current_cluster_if_there_is_one() {
    const POLICY: &str = "kind: ValidatingAdmissionPolicy\n";
    let project = Project::new();
    let kubeconfig = project.path("served");
    let server =
        Server::builder().compat(Compat::kubernetes(37)).kubeconfig(&kubeconfig).start().await.unwrap();
    project.file("broken", "not a kubeconfig");
    tokio::task::block_in_place(|| {
        let run = |kubeconfig: &str, arguments: &[&str]| {
            let mut command = project.command();
            command.arg("install").args(arguments).env("KUBECONFIG", project.path(kubeconfig));
            let output = command.output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.code(), text(&output.stdout).contains(POLICY), text(&output.stderr))
        };
        let (code, has_policy, err) = run("served", &[]);
        assert_eq!((code, has_policy, err.as_str()), (Some(0), true, ""));
        let (code, has_policy, _) = run("served", &["--kubernetes-version", "v1.29"]);
        assert_eq!((code, has_policy), (Some(0), false));
        // Without a cluster, what is left out is reported.
        for kubeconfig in ["broken", "missing"] {
            let (code, has_policy, err) = run(kubeconfig, &[]);
            assert_eq!((code, has_policy), (Some(0), false), "{err}");
            assert!(err.contains("without the policy that restricts each node agent"), "{err}");
        }
        for arguments in [&["--cluster"][..], &["--context", "c"], &["--kubeconfig", "broken"]] {
            assert_eq!(run("broken", arguments).0, Some(3), "{arguments:?}");
        }
    });
    server.shutdown().await;
}

#[test]
fn options_choose_what_is_printed() {
    for (arguments, holds, lacks) in [
        (
            &["--components", "webhook"][..],
            &["Deployment/palisade-webhook", "Namespace/palisade-system"][..],
            "DaemonSet/palisade-node",
        ),
        (
            &["--components", "crds"],
            &["CustomResourceDefinition/publishedprofiles.palisade.dev"],
            "Namespace/palisade-system",
        ),
        (
            &["-n", "guard"],
            &["Namespace/guard", "Namespace/palisade-system"],
            "SecurityContextConstraints/restricted",
        ),
        (
            &["--rollout"],
            &["CustomResourceDefinition/podsecurityrollouts.palisade.dev"],
            "CustomResourceDefinition/securitycontextconstraints.security.openshift.io",
        ),
        (
            &["--security-context-constraints=audit"],
            &["CustomResourceDefinition/securitycontextconstraints.security.openshift.io"],
            "Namespace/guard",
        ),
        (
            &["--components", "constraints"],
            &["SecurityContextConstraints/restricted-v2"],
            "ResourceQuota/palisade-critical-pods",
        ),
        (
            &["--kubernetes-version", "v1.30"],
            &["ValidatingAdmissionPolicy/palisade-node"],
            "ValidatingAdmissionPolicy/palisade-webhook",
        ),
        (
            &["--monitoring"],
            &["PodMonitor/palisade", "PrometheusRule/palisade", "ConfigMap/palisade-dashboard"],
            "Namespace/guard",
        ),
        (&["--reports=false"], &["Deployment/palisade-controller"], "PrometheusRule/palisade"),
        (&["--api-server-cidr", "10.0.0.0/24"], &["NetworkPolicy/palisade-webhook"], "Namespace/guard"),
        (
            &["--kubernetes-version", "v1.30", "--fail-fast=warn"],
            &["ValidatingAdmissionPolicy/palisade-webhook"],
            "Namespace/guard",
        ),
        (
            &["--kubernetes-version", "v1.29"],
            &["DaemonSet/palisade-node"],
            "ValidatingAdmissionPolicy/palisade-node",
        ),
    ] {
        let (_, objects) = installed(arguments);
        let names = names(&objects);
        for name in holds {
            assert!(names.iter().any(|found| found == name), "{arguments:?}: {name} is missing: {names:#?}");
        }
        assert!(!names.iter().any(|name| name == lacks), "{arguments:?}: {lacks}");
    }
    for (arguments, gates) in [
        (&[][..], "--feature-gates=SeccompConfigMaps=false,AppArmor=true"),
        (
            &["--feature-gates", "SeccompConfigMaps=true,AppArmor=false"],
            "--feature-gates=SeccompConfigMaps=true,AppArmor=false",
        ),
        (
            &["--feature-gates", "OpenShiftPodSecurityAdmission=false"],
            "--feature-gates=OpenShiftPodSecurityAdmission=false",
        ),
    ] {
        let (text, _) = installed(arguments);
        assert!(text.contains(&format!("        - {gates}\n")), "{arguments:?}: {gates}");
    }
    let (constraints, _) = installed(&["--components", "constraints"]);
    assert!(!constraints.contains(": null"), "kubectl would leave it out, and the field is required");
    for (arguments, error) in [
        (&["--kubernetes-version", "v1.23"][..], "Palisade runs on v1.24 to v1.37"),
        (&["-n", "Not_A_Name"], "is not a valid name of a namespace"),
        (&["--image", "a b"], "is not a valid name of an image"),
        (&["-n", "guard", "--rollout"], "requires the namespace palisade-system"),
        (&["--api-server-cidr", "10.0.0.1"], "is not an address range"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        let output = without_cluster(command.arg("install").args(arguments)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(error), "{arguments:?}");
    }
}

/// The containers of workloads, with their workload's name.
fn containers(objects: &[Value]) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for object in objects {
        for list in ["initContainers", "containers"] {
            for container in object
                .pointer(&format!("/spec/template/spec/{list}"))
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let name = object["metadata"]["name"].as_str().unwrap();
                found.push((format!("{name}/{}", container["name"].as_str().unwrap()), container.clone()));
            }
        }
    }
    found
}

#[test]
fn every_argument_in_the_manifests_exists() {
    for arguments in [
        &[][..],
        &["--rollout", "--feature-gates=SeccompConfigMaps=true,OpenShiftPodSecurityAdmission=false"],
        &["--rollout", "--reports=false"],
        &["--rollout", "--count-exceptions", "--reports=false"],
        &["--reports=false"],
        &["-n", "guard", "--image", "registry.example/palisade@sha256:0"],
    ] {
        let (_, objects) = installed(arguments);
        let containers = containers(&objects);
        assert_eq!(containers.len(), 4);
        for (name, container) in containers {
            let args: Vec<String> = container["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| arg.as_str().unwrap().replace("$(NODE_NAME)", "node-1"))
                .collect();
            let line = std::iter::once("palisade".to_owned()).chain(args.clone());
            if let Err(error) = Cli::try_parse_from(line) {
                panic!("{name} {args:?}: {error}");
            }
        }
    }
}

#[test]
fn everything_but_the_node_agent_complies_with_restricted() {
    let project = Project::new();
    for arguments in
        [&["--components", "webhook,controller"][..], &["--components", "webhook,controller", "--rollout"]]
    {
        project.file("install.yaml", &installed(arguments).0);
        let shown = project.run(&["check", "--level=restricted", "install.yaml"]).to_string();
        assert!(
            shown.contains("2 objects in 1 file checked at restricted:latest: 2 allowed, 0 denied"),
            "{shown}"
        );
    }
    project.file("install.yaml", &installed(&["--components", "node"]).0);
    let shown = project.run(&["check", "--level=baseline", "-o", "name", "install.yaml"]).to_string();
    assert!(shown.contains("0 allowed, 1 denied"), "the agent needs the host, and reports why: {shown}");
}

#[test]
fn every_rule_and_every_host_access_has_a_reason() {
    let (text, _) = installed(&["--rollout"]);
    let lines: Vec<&str> = text.lines().collect();
    let mut rules = 0;
    for (number, line) in lines.iter().enumerate() {
        let before = lines[number.saturating_sub(1)].trim_start();
        if line.starts_with("- apiGroups:") {
            rules += 1;
            // A second rule that narrows the first one shares its reason.
            let shared =
                lines[..number].iter().rev().find(|line| line.starts_with('#') || line.starts_with("rules:"));
            assert!(shared.unwrap().starts_with('#'), "line {number}: {line}");
        }
        if line.trim_start().starts_with("hostPID:") || line.trim_start().starts_with("add: [") {
            assert!(before.starts_with('#'), "line {number}: {line} is not explained");
        }
    }
    assert!(rules > 20, "{rules}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_the_manifests_twice_without_changes() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = Server::builder().kubeconfig(&kubeconfig).start().await.unwrap();
    let apply = |text: &str, kubeconfig: &Path| {
        let (out, err) = kubectl(kubeconfig, &["apply", "-f", "-"], text);
        out + &err
    };
    for (arguments, warnings) in [(&[][..], 1), (&["--kubernetes-version", "v1.37"], 0)] {
        let (text, _) = installed(arguments);
        // The embedded server runs no policies in CEL.
        let documents: Vec<&str> =
            text.split("---\n").filter(|text| !text.contains("\nkind: ValidatingAdmissionPolicy")).collect();
        let (count, text) = (documents.len(), documents.join("---\n"));
        assert_eq!(count, 30, "{arguments:?}");
        let (first, second) = tokio::task::spawn_blocking({
            let kubeconfig = kubeconfig.clone();
            move || (apply(&text, &kubeconfig), apply(&text, &kubeconfig))
        })
        .await
        .unwrap();
        // Servers since v1.30 warn about the annotation that those before need.
        assert_eq!(first.lines().filter(|line| line.starts_with("Warning")).count(), warnings, "{first}");
        // kubectl replaces the selector of a budget each time, on every server.
        let settled =
            |line: &&str| line.ends_with("unchanged") || line.starts_with("poddisruptionbudget.policy");
        assert_eq!(second.lines().filter(settled).count(), count, "{second}");
    }
    server.shutdown().await;
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/palisade")
}

/// `cargo xtask gen` runs this with PALISADE_GENERATE set.
#[test]
fn the_chart_is_made_of_the_same_templates() {
    let folder = chart().join("templates");
    for (name, text) in chart_templates() {
        let file = folder.join(&name);
        if std::env::var_os("PALISADE_GENERATE").is_some() {
            fs::write(&file, &text).unwrap();
        }
        assert_eq!(
            fs::read_to_string(&file).unwrap_or_default(),
            text,
            "{name} is stale: run cargo xtask gen"
        );
    }
}

/// Go's own template engine, with the few functions of Helm that the chart uses.
#[test]
fn the_chart_renders_what_install_prints() {
    let chart = chart();
    let output = Command::new("go")
        .arg("run")
        .arg(chart.join("../render.go"))
        .arg(&chart)
        .args(["palisade-system", "monitoring"])
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off")
        .output()
        .expect("go is installed by `cargo xtask setup`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let parsed = parse(&text, &Limits::default());
    assert!(parsed.errors.is_empty(), "{:?}\n{text}", parsed.errors);
    let by_name = |objects: Vec<Value>| -> BTreeMap<String, Value> {
        let keys = names(&objects);
        keys.into_iter().zip(objects).collect()
    };
    let mut rendered: Vec<Value> = parsed
        .documents
        .iter()
        .map(|document| document.root().to_json().unwrap())
        .filter(|object| !object.is_null())
        .collect();
    // What Helm runs before it removes a release is `palisade uninstall` for plain manifests.
    let is_hook = |object: &Value| object.pointer("/metadata/annotations/helm.sh~1hook").is_some();
    assert_eq!(rendered.iter().filter(|object| is_hook(object)).count(), 4);
    rendered.retain(|object| !is_hook(object));
    for object in &mut rendered {
        if object["kind"] == "CustomResourceDefinition" {
            assert_eq!(object["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    let mut expected = by_name(installed(&["--monitoring"]).1);
    expected.remove("Namespace/palisade-system");
    let rendered = by_name(rendered);
    assert_eq!(rendered.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, object) in expected {
        assert_eq!(rendered[&name], object, "{name}");
    }
}
