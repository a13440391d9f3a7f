//! `palisade rollout status` and `plan`: which namespaces violate Pod Security once it is enforced, why, and what
//! to do about it, on a cluster, or from manifests or a dump of one.
//!
//! The answers are `palisade-controllers`'; here objects are read and the answers drawn. Where manifests are for OpenShift, what they
//! leave out is assumed as a new cluster has it: the built-in constraints and their grants, the `default` service account,
//! the ranges of namespaces. Anywhere else nothing fills the gaps of a pod, and none is assumed to.

mod custom_resources;
pub(crate) mod text;
mod waves;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use palisade_check::exceptions::{Exceptions, METADATA_NAME};
use palisade_controllers::{
    api::{Api, ApiError, Resource},
    cluster::{Cluster, Seen, Undecided, holds_pod, is_of_openshift},
    observe::{Observed, Scope},
    readiness::{
        ledger::Ledger,
        report::{NamespaceReport, report, report_with_times},
    },
    runner::scope,
};
use palisade_model::{
    compat::Compat,
    workload::{group_of, workload_kind},
};
use palisade_policy::{
    enforcement::{labels::LEVEL_ANNOTATION, level::LevelSource, platform::Platform, resource},
    standards::policy::Mode,
};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

use self::text::{json_text, plan_text, status_text};
use crate::{
    args::{ApiVersion, TableFormat},
    cluster::ClusterArgs,
    config::glob_matches,
    exceptions::{now, of_paths},
    failure::{Exit, Failure},
    input::{Input, discover},
    judge::decode,
    manifest::{Object, misnamed, objects},
    overlays::not_built,
    service,
    terminal::Terminal,
};

/// `palisade rollout …`
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Show the level of every namespace, and the workloads that it rejects
    Status(RolloutArgs),
    /// Print the commands that keep everything running, with the reasons as comments
    Plan(RolloutArgs),
    /// Pause the waves: none begins, sets a label or ends
    Pause(WaveArgs),
    /// Resume waves that are paused, stopped or taken back
    Resume(WaveArgs),
    /// Take a wave and those after it back: their enforce labels are removed
    Rollback(RollbackArgs),
}

/// What the commands about waves take.
#[derive(Debug, Args)]
pub struct WaveArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `palisade rollout rollback`
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// Name of the wave [default: the current one]
    #[arg(value_name = "WAVE")]
    pub wave: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// What both commands of `palisade rollout` take.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RolloutArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin [default: the cluster]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exclude paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Namespace of objects that do not set one [default: default]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// With paths: file or folder with SecurityExceptions, whose findings count as compliant; may be repeated. A cluster counts them as its
    /// controller does
    #[arg(long, value_name = "PATH", requires = "paths")]
    pub exceptions: Vec<PathBuf>,
    /// With paths: they are for OpenShift, and omitted objects are those of a new cluster [default: detected]
    #[arg(long)]
    pub openshift: bool,
    /// Release of the API server: v1.19 to v1.37, or `extended` for Palisade's extensions [default: that of the cluster; with
    /// paths, v1.37, or `extended` if they use the extensions]
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<ApiVersion>,
    /// Output: table or json
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT", hide_possible_values = true)]
    pub output: TableFormat,
}

const AFTER_HELP: &str = "\
Exit status: 0 everything complies, 1 something blocks enforcement or is undecided, 2 something could not be read or wrong
usage, 3 cluster unreachable.

A workload blocks enforcement if the level rejects its pods, or if they are rejected already: no constraint admits its template, or
it reports that its pods cannot be created. What cannot be evaluated is undecided: templates that cannot be decoded, pods in unknown
kinds, workloads with missing pods and no reported reason.

A cluster is read once. To read a dump instead:
    kubectl get -A -o yaml --show-managed-fields ns,sa,pods,deploy,ds,sts,rs,jobs,cronjobs,\\
        roles,rolebindings,clusterroles,clusterrolebindings,scc | palisade rollout status -
Without managed fields, labels of the label syncer are taken for labels of the owner.";

/// How long a cluster may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);

/// Runs the command.
pub fn run(command: &RolloutCommand, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let args = match command {
        RolloutCommand::Status(args) | RolloutCommand::Plan(args) => args,
        RolloutCommand::Pause(WaveArgs { cluster }) => {
            return service::block_on(waves::change(cluster, &waves::Change::Pause, terminal));
        }
        RolloutCommand::Resume(WaveArgs { cluster }) => {
            return service::block_on(waves::change(cluster, &waves::Change::Resume, terminal));
        }
        RolloutCommand::Rollback(RollbackArgs { wave, cluster }) => {
            let change = waves::Change::Rollback(wave.clone());
            return service::block_on(waves::change(cluster, &change, terminal));
        }
    };
    let is_cluster_named = args.cluster.kubeconfig.is_some() || args.cluster.context.is_some();
    let (answer, problems) = match (args.paths.is_empty(), is_cluster_named) {
        (false, true) => {
            return Err(Failure::input(
                "paths conflict with --kubeconfig and --context: use one or the other",
            ));
        }
        (true, _) => (service::block_on(read_cluster(&args.cluster, args.kubernetes_version))?, Vec::new()),
        (false, false) => {
            let exceptions = of_paths(&args.exceptions)?;
            let mut reading = read_manifests(args);
            let cluster = reading.cluster(exceptions);
            let Reading { problems, used, hides_owners, assumes, .. } = reading;
            for problem in &problems {
                terminal.report(format!("error: {problem}"));
            }
            if hides_owners {
                terminal.report(
                    "note: the namespaces have no managed fields, so that labels of the label syncer are taken for labels of the \
                     owner; dump them with --show-managed-fields",
                );
            }
            if used == 0 {
                return Err(Failure::input("no namespaces, workloads or pods found"));
            }
            if cluster.constraints().is_empty() {
                terminal.report(
                    "note: nothing in the input belongs to OpenShift, so that no constraints and labels are assumed; use --openshift \
                     to evaluate it as in a new OpenShift cluster",
                );
            } else if assumes {
                terminal.report(
                    "note: the input belongs to OpenShift and has no SecurityContextConstraints, so that those of a new cluster \
                     are assumed",
                );
            }
            (Answer::of(&cluster, report(&cluster).collect(), None), problems)
        }
    };
    let namespaces = &answer.namespaces;
    let text = match (command, args.output) {
        (RolloutCommand::Status(_), TableFormat::Table) => status_text(&answer),
        (_, TableFormat::Table) => plan_text(&answer),
        (_, TableFormat::Json) => json_text(&answer),
    };
    terminal.print(text)?;
    if !problems.is_empty() {
        // What could not be read may be what stands in the way.
        return Ok(Exit::Input);
    }
    let is_compliant = answer.unplaced.is_empty() && namespaces.iter().all(NamespaceReport::is_compliant);
    Ok(if is_compliant { Exit::Clean } else { Exit::Findings })
}

/// What was found, in a cluster or in manifests.
struct Answer {
    namespaces: Vec<NamespaceReport>,
    /// Constraints that admit nothing because they make no sense, and why.
    skipped: Vec<(String, String)>,
    /// What cannot be evaluated and is in no namespace.
    unplaced: Vec<Undecided>,
    /// The state that the cluster reports.
    live: Option<Live>,
}

impl Answer {
    fn of(cluster: &Cluster, namespaces: Vec<NamespaceReport>, live: Option<Live>) -> Self {
        let skipped =
            cluster.skipped_constraints().into_iter().map(|(name, why)| (name.to_owned(), why)).collect();
        Self { namespaces, skipped, unplaced: cluster.unplaced().cloned().collect(), live }
    }
}

/// The state that a cluster reports.
struct Live {
    /// The `PSAEnforcementConfig`; null where there is none.
    config: Value,
    /// The state of every instance, and when it was last reported if that is long ago.
    instances: Vec<String>,
    /// Namespaces that lack the enforce label they would get.
    unlabelled: Vec<String>,
    /// The `PodSecurityRollout`; null where there is none.
    rollout: Value,
}

/// The state of a cluster, as `palisade rollout status -o json` prints it.
pub(crate) async fn of_cluster(cluster: &ClusterArgs) -> Result<Value, Failure> {
    let answer = read_cluster(cluster, None).await?;
    serde_json::from_str(&json_text(&answer)).map_err(Failure::incomplete)
}

/// Reads a cluster.
async fn read_cluster(cluster: &ClusterArgs, version: Option<ApiVersion>) -> Result<Answer, Failure> {
    let cluster = cluster.connect().await?;
    let announced = cluster.compat().await?;
    let api = Api::new(cluster.client.clone());
    let compat = version.map_or(announced, |ApiVersion(compat)| compat);
    let observed = Observed::new(compat, scope_of(&api).await.map_err(|error| cluster.error(error))?);
    let _watches = observed.watch(&api);
    let failing = async {
        let mut changes = observed.subscribe();
        loop {
            if let Some(reason) = observed.lock().failing() {
                return cluster.not_watched(reason);
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        () = observed.synced() => {}
        error = failing => return Err(error.into()),
        () = tokio::time::sleep(ANSWER_WITHIN) => return Err(cluster.timeout(ANSWER_WITHIN).into()),
    }
    // Without the permission to read it, the report lacks only the times of those that the status does not list.
    let ledger = Ledger::read(&api).await.unwrap_or_default();
    let others = custom_resources::list(&api).await;
    let mut state = observed.lock();
    state.catch_up();
    for (object, problem) in &others {
        match problem {
            None => {
                state.cluster.observe(object);
            }
            Some(problem) => {
                let text = |key: &str| object[key].as_str().unwrap_or_default();
                state.cluster.set_undecided(text("apiVersion"), text("kind"), "", "*", problem);
            }
        }
    }
    if !state.is_config_served {
        state.cluster.without_label_syncer();
    }
    let namespaces = report_with_times(&state.cluster, &state.config, &ledger);
    let live = Live {
        config: state.config.clone(),
        instances: state.instances(),
        unlabelled: state.cluster.unlabelled().map(str::to_owned).collect(),
        rollout: state.rollout.clone(),
    };
    Ok(Answer::of(&state.cluster, namespaces, Some(live)))
}

/// Where the levels of a cluster come from: what its rollout reports, or whether it enforces constraints, as OpenShift does. Exceptions
/// count as they do in its rollout.
async fn scope_of(api: &Api) -> Result<Scope, ApiError> {
    let groups = api.get("/apis").await?.unwrap_or_default();
    let config = Resource::new(resource::GROUP, resource::VERSION, resource::PLURAL);
    let config = api.get(&config.object(None, resource::NAME)).await?.unwrap_or_default();
    let has_constraints = groups["groups"]
        .as_array()
        .is_some_and(|groups| groups.iter().any(|group| group["name"] == "security.openshift.io"));
    let levels = match config["status"]["levels"].as_str() {
        Some("Workloads") => LevelSource::Workloads,
        Some("Constraints") => LevelSource::Constraints,
        _ if has_constraints => LevelSource::Constraints,
        _ => LevelSource::Workloads,
    };
    let count_exceptions = config["status"]["exceptions"] == "Counted";
    Ok(scope(levels, Platform::of(&groups), count_exceptions))
}

/// Whether the owner of the enforce label of a namespace is unknown.
fn hides_owners(object: &Value) -> bool {
    let metadata = &object["metadata"];
    object["kind"] == "Namespace"
        && metadata.get("managedFields").is_none()
        && metadata["labels"].get(Mode::Enforce.level_label()).is_some()
        && metadata["annotations"].get(LEVEL_ANNOTATION).is_some()
}

/// Reads manifests.
fn read_manifests(args: &RolloutArgs) -> Reading<'_> {
    let excluded = |path: &Path| args.exclude.iter().any(|pattern| glob_matches(pattern, path));
    let found = discover(&args.paths, excluded);
    let mut reading = Reading::new(args);
    reading.problems.extend(found.problems.iter().map(|problem| problem.summary.clone()));
    for input in &found.inputs {
        reading.input(input);
    }
    reading
}

/// What was read so far.
struct Reading<'a> {
    args: &'a RolloutArgs,
    /// The objects, and for those that cannot be read how to name them.
    objects: Vec<(Value, String)>,
    problems: Vec<String>,
    used: usize,
    /// Some namespace has labels of the label syncer without managed fields.
    hides_owners: bool,
    /// The constraints of a new OpenShift cluster are assumed without `--openshift`.
    assumes: bool,
}

/// Whether an object uses fields that only Palisade's extensions have.
fn is_extended(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(is_extended),
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            let of_pod = ["hostNetwork", "hostPID", "hostIPC", "containerDefaults"];
            let of_profile = key == "seccompProfile" && value.get("oci").is_some();
            matches!(key.as_str(), "configMapProfile" | "runWithSupplementalGroups")
                || of_profile
                || (key == "securityContext" && of_pod.iter().any(|field| value.get(field).is_some()))
                || is_extended(value)
        }),
        _ => false,
    }
}

impl<'a> Reading<'a> {
    const fn new(args: &'a RolloutArgs) -> Self {
        Self { args, objects: Vec::new(), problems: Vec::new(), used: 0, hides_owners: false, assumes: false }
    }

    /// The cluster that the objects make up.
    fn cluster(&mut self, exceptions: Exceptions) -> Cluster {
        let objects = std::mem::take(&mut self.objects);
        let compat = match self.args.kubernetes_version {
            Some(ApiVersion(compat)) => compat,
            None if objects.iter().any(|(object, _)| is_extended(object)) => Compat::designs(),
            None => ApiVersion::default().0,
        };
        let is_openshift = self.args.openshift || objects.iter().any(|(object, _)| is_of_openshift(object));
        let levels = if is_openshift { LevelSource::Constraints } else { LevelSource::Workloads };
        let mut cluster = Cluster::with_levels(compat, levels);
        if !self.args.exceptions.is_empty() {
            cluster.count_exceptions(now());
            cluster.set_exceptions(exceptions.into_set());
        }
        let is_constraint = |object: &Value| object["kind"] == "SecurityContextConstraints";
        self.assumes =
            is_openshift && !self.args.openshift && !objects.iter().any(|(object, _)| is_constraint(object));
        if is_openshift {
            // The input's own constraints replace those of the same name.
            cluster.add_openshift_defaults();
        } else {
            cluster.without_label_syncer();
        }
        let mut known: BTreeMap<[&str; 4], &Value> = BTreeMap::new();
        for (object, name) in &objects {
            self.hides_owners |= hides_owners(object);
            let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
            match cluster.observe(object) {
                Seen::Used | Seen::Undecided => self.used += 1,
                Seen::Irrelevant => {
                    if let Some((what, help)) = misnamed(api_version, kind) {
                        let help = help.map(|help| format!("; {help}")).unwrap_or_default();
                        self.problems.push(format!("cannot read {name}: {what}{help}"));
                    }
                    continue;
                }
                Seen::Unreadable => self.problems.push(format!("cannot read {name}")),
            }
            let [namespace, own] = ["/metadata/namespace", "/metadata/name"].map(|at| text(object, at));
            let same = known.insert([group_of(api_version), kind, namespace, own], object);
            // Of two observations of a cluster the later counts; of two manifests it is not known which will.
            let is_observed = |object: &Value| object["metadata"].get("uid").is_some();
            if same.is_some_and(|same| same != object && !(is_observed(same) && is_observed(object))) {
                self.problems
                    .push(format!("{name} is there twice with different content, and only one is evaluated"));
            }
        }
        cluster.assume_what_manifests_leave_out();
        cluster
    }

    fn input(&mut self, input: &Input) {
        let file = input.name();
        let bytes = match input.read() {
            Ok(bytes) => bytes,
            Err(problem) => return self.problems.push(problem.summary),
        };
        let text = match decode(&file, &bytes) {
            Ok(text) => text,
            Err(problem) => return self.problems.push(problem.summary),
        };
        self.problems.extend(not_built(&file, &text));
        let parsed = parse(&text, &Limits::default());
        self.problems.extend(parsed.errors.iter().map(|error| format!("{file}: {error}")));
        for document in &parsed.documents {
            let duplicates = document.duplicate_keys().iter();
            self.problems.extend(duplicates.map(|duplicate| {
                format!("{file}: the key \"{}\" is set twice in the same mapping", duplicate.key)
            }));
            for object in objects(document) {
                self.object(&file, &object);
            }
        }
    }

    fn object(&mut self, file: &str, object: &Object<'_>) {
        let value = match object.node.to_json() {
            Ok(value) => value,
            Err(error) => return self.problems.push(format!("{file}: {error}")),
        };
        if let Some(problem) = object.list_problem() {
            return self.problems.push(format!("{file}: {problem}"));
        }
        let value = self.complete(value, object.api_version, object.kind);
        let name = object.name().unwrap_or("without a name");
        let described = format!("{file}: {} {name}", object.kind);
        if object.kind == "Pod" && text(&value, "/metadata/name").is_empty() {
            return self.problems.push(format!("cannot read {described}"));
        }
        self.objects.push((value, described));
    }

    /// Adds what items of a list and manifests may omit: `apiVersion`, `kind`, the namespace, and a generated name.
    fn complete(&self, mut value: Value, api_version: &str, kind: &str) -> Value {
        let is_namespaced = workload_kind(api_version, kind).is_some()
            || matches!(kind, "Pod" | "ServiceAccount" | "Role" | "RoleBinding")
            || holds_pod(api_version, kind, &value);
        let Value::Object(object) = &mut value else { return value };
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        if let Some(Value::Object(metadata)) = object.get_mut("metadata")
            && (api_version, kind) == ("v1", "Namespace")
            && let Some(name) = metadata.get("name").cloned()
        {
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            if let Value::Object(labels) = labels {
                labels.insert(METADATA_NAME.to_owned(), name);
            }
        } else if let Some(Value::Object(metadata)) = object.get_mut("metadata")
            && is_namespaced
        {
            let is_empty = |field: Option<&Value>| field.and_then(Value::as_str).is_none_or(str::is_empty);
            if is_empty(metadata.get("namespace")) {
                let namespace = self.args.namespace.as_deref().unwrap_or("default");
                metadata.insert("namespace".to_owned(), namespace.into());
            }
            let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
            if is_empty(metadata.get("name")) && !prefix.is_empty() {
                // Two objects with the same prefix are two objects.
                let name = format!("{prefix}<generated {}>", self.objects.len() + 1);
                metadata.insert("name".to_owned(), name.into());
            }
        }
        value
    }
}

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
