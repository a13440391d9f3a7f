//! `palisade rollout status` reports the same from manifests, from a dump and from the live cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use palisade_testkit::shared;
use serde_json::{Value, json};

use crate::support::{Project, Run, Running, kubectl};

/// Everything the rollout depends on, as the help of the command lists it.
const DUMPED: &str =
    "ns,sa,pods,deploy,ds,sts,rs,rc,jobs,cronjobs,roles,rolebindings,clusterroles,clusterrolebindings";

fn corpus(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/rollout").join(folder)
}

/// Upstream's fixture pods: those of each folder in a namespace of their own.
fn fixtures(project: &Project) -> Option<PathBuf> {
    let root = shared("fixtures/pod-security-standards")?;
    let mut text = String::new();
    for (level, version) in [("baseline", "v1.34"), ("restricted", "v1.36")] {
        for outcome in ["pass", "fail"] {
            let namespace = format!("{level}-{}-{outcome}", version.replace('.', "-"));
            let Ok(files) = fs::read_dir(root.join(level).join(version).join(outcome)) else { continue };
            let _ = writeln!(text, "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}");
            let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
            files.sort();
            // An API server rejects an unmasked /proc without a user namespace.
            files.retain(|file| !file.file_name().unwrap().to_string_lossy().starts_with("procmount"));
            for file in files {
                let pod = fs::read_to_string(&file).unwrap();
                let name = file.file_stem().unwrap().to_str().unwrap().replace('_', "-").to_lowercase();
                let old = pod.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap().to_owned();
                let pod = pod.replacen(
                    &format!("  name: {old}"),
                    &format!("  name: {name}\n  namespace: {namespace}"),
                    1,
                );
                let _ = writeln!(text, "---\n{pod}");
            }
            text.push_str("---\n");
        }
    }
    project.file("fixtures/pods.yaml", text);
    Some(project.path("fixtures"))
}

type Verdicts = BTreeMap<String, (String, BTreeSet<String>, BTreeSet<String>)>;

/// What a report comes to, namespace by namespace: the verdict, what blocks, and what is undecided.
fn verdicts(run: &Run) -> Verdicts {
    let names = |list: &Value| -> BTreeSet<String> {
        let objects = list.as_array().unwrap().iter();
        objects
            .map(|object| {
                format!("{}/{}", object["kind"].as_str().unwrap(), object["name"].as_str().unwrap())
            })
            .collect()
    };
    let json = run.json();
    json["namespaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|namespace| {
            let verdict = match (&namespace["blocks"], &namespace["undecided"]) {
                (Value::Bool(true), _) => "violates",
                (_, Value::Null) => "complies",
                _ => "undecided",
            };
            let is_judged = namespace["undecided"].is_null() && namespace["unjudged"] == json!([]);
            assert_eq!(namespace["complies"].is_string(), is_judged, "{namespace:#}");
            let lists = (names(&namespace["blockers"]), names(&namespace["unjudged"]));
            (namespace["name"].as_str().unwrap().to_owned(), (verdict.to_owned(), lists.0, lists.1))
        })
        .collect()
}

fn same_from_every_source(
    arguments: &[&str],
    folders: &[PathBuf],
    expected: &[(&str, &str)],
    status: &[&str],
) {
    let project = Project::new();
    let kubeconfig = project.path("kubeconfig");
    let mut command = project.command();
    command.args(["up", "--kubeconfig", "kubeconfig"]).args(arguments);
    let server = Running::start(&mut command);
    server.line("palisade is up");

    let crd = corpus("crd.yaml");
    kubectl(&kubeconfig, &["apply", "-f", crd.to_str().unwrap()], "");
    let paths: Vec<&str> = folders.iter().map(|folder| folder.to_str().unwrap()).collect();
    let applied = folders.iter().map(|folder| {
        let mut texts: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        texts.sort();
        texts.iter().map(|file| fs::read_to_string(file).unwrap()).collect::<Vec<_>>().join("\n---\n")
    });
    let applied = applied.collect::<Vec<_>>().join("\n---\n");
    let namespaces: Vec<&str> =
        applied.split("\n---\n").filter(|text| text.contains("kind: Namespace")).collect();
    kubectl(&kubeconfig, &["apply", "-f", "-"], &namespaces.join("\n---\n"));
    // Service accounts, and ranges where there are constraints.
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let (listed, _) = kubectl(&kubeconfig, &["get", "ns,sa", "-A", "-o", "json"], "");
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let of = |kind: &str| -> BTreeSet<String> {
            let items = listed["items"].as_array().unwrap().iter().filter(|item| item["kind"] == kind);
            let has_range = |item: &&Value| {
                kind != "Namespace"
                    || !arguments.contains(&"--openshift")
                    || item["metadata"]["annotations"].get("openshift.io/sa.scc.uid-range").is_some()
            };
            let field = if kind == "Namespace" { "name" } else { "namespace" };
            items.filter(has_range).map(|item| item["metadata"][field].as_str().unwrap().to_owned()).collect()
        };
        let all =
            listed["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "Namespace").count();
        if of("Namespace").len() == all && of("ServiceAccount").len() == all {
            break;
        }
        assert!(Instant::now() < until, "{listed:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
    kubectl(&kubeconfig, &["apply", "-f", "-"], &applied);

    let kinds = if arguments.contains(&"--openshift") {
        format!("{DUMPED},farms,scc")
    } else {
        format!("{DUMPED},farms")
    };
    let (dump, _) = kubectl(&kubeconfig, &["get", "-A", "-o", "yaml", "--show-managed-fields", &kinds], "");
    let run = [&["rollout", "status", "-o", "json"], status].concat();
    let files = project.run(&[&run[..], &paths[..]].concat());
    let dump = project.run_with_stdin(&["rollout", "status", "-o", "json", "-"], dump);
    let live = project.run(&["rollout", "status", "-o", "json", "--kubeconfig", "kubeconfig"]);
    let [from_files, from_dump, from_live] = [&files, &dump, &live].map(verdicts);
    for (namespace, verdict) in expected {
        assert_eq!(from_files[*namespace].0, *verdict, "{namespace}\n{files}");
    }
    for (namespace, found) in &from_files {
        assert_eq!(Some(found), from_dump.get(namespace), "{namespace} in the dump");
        assert_eq!(Some(found), from_live.get(namespace), "{namespace} in the live cluster");
    }
    let statuses = [&files, &dump, &live].map(|run| run.status);
    assert_eq!(statuses, [1; 3], "{files}");
    for (name, (verdict, ..)) in &from_live {
        assert!(from_files.contains_key(name) || verdict == "complies", "{name}: {verdict}");
    }
}

#[test]
fn manifests_dump_and_cluster_agree_on_plain_kubernetes() {
    let project = Project::new();
    let mut folders = vec![corpus("plain")];
    folders.extend(fixtures(&project));
    same_from_every_source(
        &["--emulate-kubernetes", "v1.37"],
        &folders,
        &[
            ("host-daemonset", "violates"),
            ("restricted-deployment", "complies"),
            ("plain-deployment", "violates"),
            ("scaled-to-zero", "violates"),
            ("privileged-job", "violates"),
            ("root-replicaset", "violates"),
            ("controller", "complies"),
            ("cronjob", "violates"),
            ("own-label", "complies"),
            ("unknown-kind", "undecided"),
            ("pods", "violates"),
        ],
        &[],
    );
}

#[test]
fn manifests_dump_and_cluster_agree_on_openshift() {
    same_from_every_source(
        &["--openshift"],
        &[corpus("plain"), corpus("openshift")],
        &[
            ("host-daemonset", "violates"),
            ("restricted-deployment", "complies"),
            ("plain-deployment", "complies"),
            ("scaled-to-zero", "violates"),
            ("root-replicaset", "violates"),
            ("cronjob", "violates"),
            ("unknown-kind", "undecided"),
            ("pods", "violates"),
            ("granted", "complies"),
            ("not-granted", "violates"),
            ("syncer-off", "violates"),
        ],
        &["--openshift", "--kubernetes-version", "designs"],
    );
}
