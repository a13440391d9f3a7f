//! A node agent whose API is a folder, for tests that need the agent as a process of its own.
//!
//! `folder_agent FOLDER` reads `FOLDER/node.json` (`runtimeEndpoint`, `rootDir`, `emulate`, and `appArmorProfile`, a text to
//! be loaded first), runs the pods it finds as
//! `FOLDER/objects/*.json`, ConfigMaps and Secrets among them, and writes what became of each to `FOLDER/status/NAME.json`.
//! Removing a pod's file deletes the pod. AppArmorProfiles in `FOLDER/apparmor` are loaded. With `kubeconfig` in the settings it serves that API server instead.
#![allow(clippy::print_stderr, reason = "a test tool prints to its terminal")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use palisade_model::compat::Compat;
use palisade_node::{
    api::{PodSource, kube::KubeSource, local::LocalSource},
    app_armor::{Host, Keeper, plan},
    kernel::apparmor::{AppArmor, Parser, load_profile},
    kubelet,
    node::{Node, NodeConfig},
    pod::RunPod,
    run::put_object,
    verify::verify_pod,
};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: folder_agent FOLDER");
        return ExitCode::from(2);
    };
    match serve(&folder).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("folder_agent: {error}");
            ExitCode::from(3)
        }
    }
}

async fn serve(folder: &Path) -> io::Result<()> {
    let settings: Value = serde_json::from_slice(&fs::read(folder.join("node.json"))?)?;
    let text = |key: &str| settings.get(key).and_then(Value::as_str);
    let mut compat = match settings.get("emulate").and_then(Value::as_u64) {
        Some(minor) => Compat::kubernetes(u16::try_from(minor).unwrap_or_default()),
        None => Compat::designs(),
    };
    compat.gates.seccomp_config_maps = true;
    let mut config = NodeConfig { compat, node_name: "folder".to_owned(), ..NodeConfig::default() };
    if let Some(endpoint) = text("runtimeEndpoint") {
        endpoint.clone_into(&mut config.runtime_endpoint);
    }
    if let Some(root) = text("rootDir") {
        config.root_dir = PathBuf::from(root);
    }
    if let Some(profile) = text("appArmorProfile") {
        load_profile(profile).await.map_err(io::Error::other)?;
    }
    if let Some(file) = text("kubeconfig") {
        return serve_api(file, config).await;
    }
    let source = LocalSource::default();
    let shared: Arc<dyn PodSource> = Arc::new(source.clone());
    let node = Node::new(config, shared).map_err(io::Error::other)?;
    tokio::spawn(keep_profiles(folder.to_owned()));
    // The first look comes before the agent's, or every pod would be an orphan.
    let mut known = BTreeMap::new();
    read_objects(folder, &source, &mut known);
    tokio::spawn(kubelet::run(node.clone(), std::future::pending()));
    fs::create_dir_all(folder.join("status"))?;
    loop {
        read_objects(folder, &source, &mut known);
        for pod in known.values() {
            write_status(folder, &node, &source, pod).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Loads the AppArmorProfiles of `FOLDER/apparmor`, and writes what became of them to `FOLDER/apparmor.json`.
async fn keep_profiles(folder: PathBuf) {
    let host = Host {
        app_armor: AppArmor::default(),
        // As an agent in a container: by the root of the node's first process.
        parser: Parser::below(Some(PathBuf::from("/proc/1/root"))),
        proc: PathBuf::from("/proc"),
    };
    let mut keeper = Keeper::new(host, Duration::from_secs(3));
    let may_complain = BTreeSet::from(["lab".to_owned()]);
    let read = |name: &str| -> Vec<Value> {
        let entries = fs::read_dir(folder.join(name)).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| fs::read(entry.path()).ok())
            .filter_map(|text| serde_json::from_slice(&text).ok())
            .collect()
    };
    loop {
        let mut rows = keeper.turn(&read("apparmor"), &may_complain).await;
        let named = read("objects").iter().flat_map(plan::named_in).collect();
        rows.extend(keeper.remove_unused(Ok(&named)));
        let fresh = folder.join(".apparmor.json");
        if fs::write(&fresh, plan::status(&rows).to_string()).is_ok() {
            fs::rename(&fresh, folder.join("apparmor.json")).ok();
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn serve_api(kubeconfig: &str, config: NodeConfig) -> io::Result<()> {
    let file = kube::config::Kubeconfig::read_from(kubeconfig).map_err(io::Error::other)?;
    let options = kube::config::KubeConfigOptions::default();
    let client = kube::Config::from_custom_kubeconfig(file, &options).await.map_err(io::Error::other)?;
    let client = kube::Client::try_from(client).map_err(io::Error::other)?;
    let source: Arc<dyn PodSource> = Arc::new(KubeSource::new(client, &config.node_name));
    let node = Node::new(config, source).map_err(io::Error::other)?;
    kubelet::run(node, std::future::pending()).await;
    Ok(())
}

fn read_objects(folder: &Path, source: &LocalSource, known: &mut BTreeMap<PathBuf, RunPod>) {
    let mut present = Vec::new();
    for entry in fs::read_dir(folder.join("objects")).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(object) = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        else {
            continue;
        };
        present.push(path.clone());
        if object.get("kind").and_then(Value::as_str) != Some("Pod") {
            put_object(source, &object);
        } else if !known.contains_key(&path)
            && let Ok(pod) = RunPod::from_object(object)
        {
            source.apply(&pod);
            known.insert(path, pod);
        }
    }
    known.retain(|path, pod| {
        let keep = present.contains(path);
        if !keep {
            source.delete(&pod.key.uid, None);
        }
        keep
    });
}

async fn write_status(folder: &Path, node: &Node, source: &LocalSource, pod: &RunPod) -> io::Result<()> {
    let events: Vec<Value> = source
        .events(&pod.key.uid)
        .into_iter()
        .map(|event| json!({"type": event.kind.as_str(), "reason": event.reason, "message": event.message, "count": event.count}))
        .collect();
    let verified = verify_pod(&node.config, &node.runtime, Some(source), pod).await.ok();
    let report = json!({"status": source.status(&pod.key.uid), "events": events, "verified": verified});
    let fresh = folder.join("status").join(format!(".{}", pod.key.name));
    fs::write(&fresh, report.to_string())?;
    fs::rename(&fresh, folder.join("status").join(format!("{}.json", pod.key.name)))
}
