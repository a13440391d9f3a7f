//! Starting one container: image, profile, environment, creation, start; and the events of a step that fails.
//!
//! Implements: the kubelet's `startContainer` with its waiting reasons and events, and the failure tables of the seccomp
//! and AppArmor designs (rows 3 and 4, and row 3).

use std::{collections::BTreeMap, fs};

use jiff::Timestamp;
use palisade_base::version::KubeVersion;
use palisade_model::{
    effective::{EffectiveContext, effective_context},
    node::{ImageUser, non_root_violation},
    pod_view::ContainerKind,
    profile::{ProfileRef, published::BASELINE_ANNOTATION, recording::Phase},
};

use super::{
    config::{ContainerParts, PodPaths, container_config},
    environment::{Surroundings, environment},
    handlers::Target,
    hooks, hosts_file,
    id_ranges::IdRange,
    images,
    observed::Observed,
    plan::{Failure, Reason, Retry},
};
use crate::{
    cri::{
        proto::{ContainerConfig, Image, PodSandboxConfig},
        translate::{Circumstances, container_context},
    },
    events::EventType,
    guards,
    node::Node,
    pod::{Container, RunPod},
    profiles::{Delivery, ProfileError, Sources, baseline::Bounds, deliver, guard, localhost::ProfileFolder},
    recording::{self, Recorded, RecordingPlan},
    volumes::HostVolume,
};

/// Where a container is to be started.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) sandbox: &'a str,
    pub(super) sandbox_config: &'a PodSandboxConfig,
    pub(super) volumes: &'a BTreeMap<String, HostVolume>,
    pub(super) paths: &'a PodPaths,
    pub(super) observed: &'a Observed,
    pub(super) pod_ips: &'a [String],
    pub(super) ids: Option<IdRange>,
}

/// How a start ended.
#[derive(Debug)]
pub(super) enum StartOutcome {
    /// Runs, under this id of the runtime.
    Started(String),
    /// Never came to be.
    NotCreated(Failure),
    /// Is there, and could not be started; the runtime has a record of it.
    NotStarted(Reason),
}

/// The field path of a container in events.
pub(super) fn field_path(kind: ContainerKind, name: &str) -> String {
    format!("spec.{}{{{name}}}", kind.field())
}

pub(super) async fn start(
    node: &Node,
    pod: &RunPod,
    kind: ContainerKind,
    container: &Container,
    restart_count: u32,
    place: &Place<'_>,
    images: &mut images::Images,
) -> StartOutcome {
    let path = field_path(kind, &container.name);
    let record = |kind: EventType, reason: &str, message: &str| {
        node.recorder.record(&pod.key, &path, kind, reason, message);
    };
    let not_created = |reason: &str, message: String, retry: Retry| {
        StartOutcome::NotCreated(Failure {
            reason: Reason { reason: reason.to_owned(), message },
            at: Timestamp::now(),
            retry,
        })
    };
    let image = match images.ensure(node, pod, &path, container, place.sandbox_config).await {
        Ok(image) => image,
        Err(reason) => {
            record(EventType::Warning, "Failed", &format!("Error: {}", reason.reason));
            return not_created(&reason.reason, reason.message, Retry::Flat);
        }
    };
    let prepared = prepare(node, pod, kind, container, restart_count, place, &image).await;
    let (config, delivery, recorded) = match prepared {
        Ok(prepared) => prepared,
        Err(refused) => {
            record(EventType::Warning, "Failed", &format!("Error: {}", refused.message));
            return not_created(refused.reason, refused.message, refused.retry);
        }
    };

    let in_user_words = |message: &str| match &delivery {
        Some(delivery) => delivery.in_user_words(message),
        None => message.to_owned(),
    };
    let created = node.runtime.create_container(place.sandbox, config, place.sandbox_config.clone()).await;
    let id = match created {
        Ok(id) => id,
        Err(error) => {
            let message = in_user_words(&error.message);
            record(EventType::Warning, "Failed", &format!("Error: {message}"));
            let profile_is_to_blame = message.contains("seccomp") || message.contains("apparmor");
            let retry = profile_retry(node.config.compat.kubelet, profile_is_to_blame);
            return not_created("CreateContainerError", message, retry);
        }
    };
    // The runtime has read the profile; the memory file is not needed any more.
    drop(delivery);
    if let Some(recorded) = &recorded {
        recorded.created(&id);
    }
    let minor = node.config.compat.kubelet.minor();
    record(EventType::Normal, "Created", &created_text(minor, &container.name));
    if let Err(error) = node.runtime.start_container(&id).await {
        // Events name the container, not its id.
        record(
            EventType::Warning,
            "Failed",
            &format!("Error: {}", error.message.replace(&id, &container.name)),
        );
        return StartOutcome::NotStarted(Reason {
            reason: "RunContainerError".to_owned(),
            message: error.message,
        });
    }
    if let Some(recorded) = recorded {
        recorded.started();
    }
    record(EventType::Normal, "Started", &started_text(minor, &container.name));
    let ip = place.pod_ips.first().cloned().unwrap_or_default();
    let recordings = node.recordings.clone();
    let target =
        Target { runtime: node.runtime.clone(), id: id.clone(), ip, minor, recordings, phase: Phase::Start };
    if let Err(error) = hooks::post_start(node, pod, container, &target).await {
        // Its output may hold secrets, and events are widely readable.
        record(EventType::Warning, "FailedPostStartHook", "PostStartHook failed");
        record(EventType::Normal, "Killing", "FailedPostStartHook");
        return StartOutcome::NotStarted(Reason {
            reason: "PostStartHookError".to_owned(),
            message: error.to_string(),
        });
    }
    StartOutcome::Started(id)
}

fn created_text(minor: u16, container: &str) -> String {
    match minor {
        ..=31 => format!("Created container {container}"),
        32..=34 => format!("Created container: {container}"),
        _ => "Container created".to_owned(),
    }
}

fn started_text(minor: u16, container: &str) -> String {
    if minor <= 34 { format!("Started container {container}") } else { "Container started".to_owned() }
}

/// The designs retry by restart policy what fails for its profile; kubelets retry everything, flatly.
const fn profile_retry(kubelet: KubeVersion, profile_is_to_blame: bool) -> Retry {
    if profile_is_to_blame && matches!(kubelet, KubeVersion::Designs) {
        Retry::ByRestartPolicy
    } else {
        Retry::Flat
    }
}

struct Refused {
    reason: &'static str,
    message: String,
    retry: Retry,
}

impl Refused {
    fn config(message: &impl ToString) -> Self {
        Self { reason: "CreateContainerConfigError", message: message.to_string(), retry: Retry::Flat }
    }
}

async fn prepare(
    node: &Node,
    pod: &RunPod,
    kind: ContainerKind,
    container: &Container,
    restart_count: u32,
    place: &Place<'_>,
    image: &Image,
) -> Result<(ContainerConfig, Option<Delivery>, Option<Recorded>), Refused> {
    let compat = &node.config.compat;
    let kubelet = compat.kubelet;
    let prepared = pod.prepared(compat);
    let reference = prepared
        .view()
        .container(&container.name)
        .ok_or_else(|| Refused::config(&format!("container {:?} is not in the pod", container.name)))?;
    let context = effective_context(&prepared, &reference);
    let image_user = image_user(image);

    // In the kubelet's order: environment, user, profiles.
    let around = Surroundings {
        node_name: &node.config.node_name,
        host_ip: &node.config.host_ip,
        pod_ips: place.pod_ips,
        allocatable: node.allocatable(),
    };
    let found = environment(pod, container, node.source.as_ref(), &around, kubelet.minor())
        .await
        .map_err(|error| Refused::config(&error))?;
    for text in &found.skipped {
        let reason = "InvalidEnvironmentVariableNames";
        node.recorder.record(&pod.key, "", EventType::Warning, reason, text);
    }
    let violation = non_root_violation(
        context.run_as_non_root.value == Some(true),
        context.run_as_user.value,
        &image_user,
        &pod.key.to_string(),
        &container.name,
        kubelet,
    );
    if let Some(text) = violation {
        return Err(Refused::config(&text));
    }
    let by_policy = profile_retry(kubelet, true);
    let resolved = context.seccomp.profile.clone().map_err(|error| Refused::config(&error))?;
    let folder = node.config.profile_folder();
    let bounds = Bounds::of_container(
        node,
        &context,
        pod.metadata.annotations.get(BASELINE_ANNOTATION).map(String::as_str),
    );
    let pull_secrets: Vec<&str> =
        pod.spec.image_pull_secrets.iter().map(|secret| secret.name.as_str()).collect();
    let sources =
        Sources { api: node.source.as_ref(), artifacts: &node.artifacts, pull_secrets: &pull_secrets };
    let delivered = deliver(&resolved, &pod.key.namespace, &folder, &sources, kubelet, &bounds).await;
    if let ProfileRef::Oci(profile) = &resolved {
        artifact_event(node, pod, &field_path(kind, &container.name), &profile.reference, &delivered);
    }
    let delivery = delivered.map_err(|error| Refused {
        // A file that cannot be loaded is what the runtime would refuse; anything else, what the node does.
        reason: match resolved {
            ProfileRef::Localhost(_) => "CreateContainerError",
            _ => "CreateContainerConfigError",
        },
        retry: if error.is_lasting() { by_policy } else { Retry::Flat },
        message: error.to_string(),
    })?;
    let delivery = with_guards(node, pod, container, (&resolved, delivery), &folder, &bounds);
    app_armor_is_loaded(node, &context)?;
    let (delivery, recorded) = match node.recordings.of_pod(pod) {
        Some((recorder, profile)) => {
            let candidate = match profile {
                None => None,
                Some((name, key)) => {
                    let profile = ProfileRef::ConfigMap { name: name.into(), key: key.into() };
                    let namespace = &pod.key.namespace;
                    deliver(&profile, namespace, &folder, &sources, kubelet, &bounds).await.transpose()
                }
            };
            let plan = RecordingPlan { recorder, candidate };
            recording::deliver(plan, delivery, (&pod.key, kind, container), &context, &bounds)
        }
        None => (delivery, None),
    };

    let target = place
        .observed
        .latest(&container.target_container_name)
        .filter(|_| kind == ContainerKind::Ephemeral && !container.target_container_name.is_empty())
        .map(|run| run.id.as_str());
    let features = node.features();
    let around = Circumstances {
        compat,
        features: &features,
        image_user: &image_user,
        seccomp_path: delivery.as_ref().map(|delivery| delivery.path.as_str()),
        is_recorded: recorded.is_some(),
        target,
        ids: place.ids,
    };
    let security_context = container_context(&context, &around).map_err(|error| Refused::config(&error))?;

    let message_file = place.paths.termination_message(&container.name, restart_count);
    if let Some(parent) = message_file.parent() {
        fs::create_dir_all(parent).map_err(|error| Refused::config(&error))?;
    }
    // The user the container runs as must be able to leave a message.
    fs::write(&message_file, b"").map_err(|error| Refused::config(&error))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&message_file, mode).map_err(|error| Refused::config(&error))?;
    fs::create_dir_all(place.paths.logs.join(&container.name)).map_err(|error| Refused::config(&error))?;

    let hosts_file = hosts_file::write(pod, container, place.pod_ips, &place.paths.folder)
        .map_err(|error| Refused::config(&error))?;
    let config = container_config(ContainerParts {
        pod,
        container,
        kind,
        restart_count,
        image_ref: &image.id,
        environment: found.variables,
        volumes: place.volumes,
        security_context,
        seccomp_profile_hash: delivery.as_ref().and_then(|delivery| delivery.hash.as_deref()),
        seccomp_source_hash: delivery.as_ref().and_then(|delivery| delivery.source_hash.as_deref()),
        is_recorded: recorded.is_some(),
        paths: place.paths,
        hosts_file: hosts_file.as_deref(),
        node_memory: node.memory(),
        manager: &node.config.manager,
        ids: place.ids,
    })
    .map_err(|error| Refused::config(&error))?;
    Ok((config, delivery, recorded))
}

/// The events of KEP-6061: what a registry gave, and why it gave nothing.
fn artifact_event(
    node: &Node,
    pod: &RunPod,
    path: &str,
    reference: &str,
    delivered: &Result<Option<Delivery>, ProfileError>,
) {
    let (kind, reason, message) = match delivered {
        Ok(Some(delivery)) if delivery.pulled => {
            let message = format!("Successfully pulled seccomp profile \"oci://{reference}\"");
            (EventType::Normal, "SecurityProfilePulled", message)
        }
        Ok(_) => return,
        Err(error) => (EventType::Warning, "SecurityProfilePullFailed", error.to_string()),
    };
    node.recorder.record(&pod.key, path, kind, reason, &message);
}

/// The profile with what the guards of the cluster forbid denied in it. A guard that cannot be applied keeps no container from
/// starting: it is reported as exposed.
fn with_guards(
    node: &Node,
    pod: &RunPod,
    container: &Container,
    (profile, delivery): (&ProfileRef<'_>, Option<Delivery>),
    folder: &ProfileFolder,
    bounds: &Bounds,
) -> Option<Delivery> {
    let applicable = node.guards.applicable(&pod.key.namespace, &pod.metadata.labels, guards::now());
    let (uid, name) = (&pod.key.uid, &container.name);
    match guard(&node.guards, &applicable, (profile, delivery.as_ref()), folder, bounds) {
        Ok(guarded) => {
            node.guards.applied(uid, name);
            guarded.or(delivery)
        }
        Err(error) => {
            node.guards.not_applied(uid, name, error.to_string());
            delivery
        }
    }
}

/// Row 3 of the AppArmor design: reported before the runtime does, with the runtime's message.
fn app_armor_is_loaded(node: &Node, context: &EffectiveContext<'_>) -> Result<(), Refused> {
    let kubelet = node.config.compat.kubelet;
    if kubelet != KubeVersion::Designs {
        return Ok(());
    }
    match &context.app_armor.profile {
        Some(Ok(ProfileRef::Localhost(name))) if node.app_armor.is_loaded(name) == Some(false) => {
            Err(Refused {
                reason: "CreateContainerError",
                message: format!(
                    "failed to get container spec opts: failed to generate apparmor spec opts: apparmor profile not found {name}"
                ),
                retry: profile_retry(kubelet, true),
            })
        }
        _ => Ok(()),
    }
}

fn image_user(image: &Image) -> ImageUser {
    match (&image.uid, image.username.as_str()) {
        (Some(uid), _) => ImageUser::Uid(uid.value),
        // An image without a user runs as root.
        (None, "") => ImageUser::Uid(0),
        (None, name) => ImageUser::Name(name.to_owned()),
    }
}
