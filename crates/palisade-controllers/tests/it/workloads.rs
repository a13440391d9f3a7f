//! The workload controllers on the embedded API server, in this process.

use std::{sync::Arc, time::Duration};

use kube::Client;
use palisade_apiserver::{Server, auth::UserInfo};
use palisade_controllers::workloads::{
    self,
    selection::{NAMES, Selection},
};
use serde_json::{Value, json};
use tower::ServiceBuilder;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind).body(body);
    client.request(request.unwrap()).await.unwrap()
}

async fn until(client: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let looking = async {
        loop {
            let found = send(client, "GET", path, &Value::Null).await;
            if wanted(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), looking)
        .await
        .unwrap_or_else(|_| panic!("{path} does not change"))
}

fn count(list: &Value) -> usize {
    list["items"].as_array().map_or(0, Vec::len)
}

fn set(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// A server with the controllers, and its administrator.
fn cluster() -> (Client, tokio::task::JoinHandle<()>) {
    let router = Server::builder().disable_plugins(["ServiceAccount".to_owned()]).router().unwrap();
    let admin = Client::new(router.clone(), "default");
    let client = move |account: &str| match account {
        "" => Client::new(router.clone(), "default"),
        name => Client::new(router.as_user(UserInfo::service_account("kube-system", name, "")), "default"),
    };
    let running = tokio::spawn(workloads::run(client, Selection::default()));
    (admin, running)
}

#[tokio::test]
async fn a_replica_set_has_as_many_pods_as_it_wants() {
    let (client, running) = cluster();
    send(&client, "POST", SETS, &set("web", 100)).await;
    let pods = until(&client, PODS, |pods| count(pods) == 100).await;
    assert_eq!(pods["items"][0]["metadata"]["ownerReferences"][0]["name"], "web");
    until(&client, &format!("{SETS}/web"), |set| set["status"]["replicas"] == 100).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let chosen = pods["items"][7]["metadata"]["name"].as_str().unwrap().to_owned();
    send(&client, "PATCH", &format!("{PODS}/{chosen}/status"), &ready).await;
    until(&client, &format!("{SETS}/web"), |set| set["status"]["availableReplicas"] == 1).await;
    send(&client, "PATCH", &format!("{SETS}/web"), &json!({"spec": {"replicas": 1}})).await;
    let left = until(&client, PODS, |pods| count(pods) == 1).await;
    assert_eq!(left["items"][0]["metadata"]["name"], chosen.as_str(), "the one that is ready stays");
    running.abort();
}

fn deployment(image: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Reports every pod as ready.
async fn run_pods(client: &Client) {
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let pods = send(client, "GET", PODS, &Value::Null).await;
    for pod in pods["items"].as_array().unwrap() {
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        // It may have been deleted since it was listed.
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let _ = client.request::<Value>(request.body(ready.to_string().into_bytes()).unwrap()).await;
    }
}

#[tokio::test]
async fn a_deployment_replaces_its_replica_set_and_keeps_the_old_one() {
    let (client, running) = cluster();
    send(&client, "POST", DEPLOYMENTS, &deployment("a", 4)).await;
    until(&client, PODS, |pods| count(pods) == 4).await;
    let path = format!("{DEPLOYMENTS}/web");
    let is_complete = |one: &Value| {
        let progress = one["status"]["conditions"].as_array().into_iter().flatten();
        let mut progress = progress.filter(|condition| condition["type"] == "Progressing");
        one["status"]["observedGeneration"] == one["metadata"]["generation"]
            && progress.any(|condition| condition["reason"] == "NewReplicaSetAvailable")
    };
    run_pods(&client).await;
    let first = until(&client, &path, is_complete).await;
    assert_eq!(first["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}}});
    send(&client, "PATCH", &path, &image).await;
    let rolling = async {
        loop {
            run_pods(&client).await;
            let found = send(&client, "GET", &path, &Value::Null).await;
            if is_complete(&found)
                && found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
            {
                return;
            }
            assert!(
                count(&send(&client, "GET", PODS, &Value::Null).await) <= 5,
                "more than the surge allows"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), rolling).await.expect("the rollout completes");
    let pods = until(&client, PODS, |pods| count(pods) == 4).await;
    let images = pods["items"].as_array().unwrap().iter().map(|pod| &pod["spec"]["containers"][0]["image"]);
    assert!(images.into_iter().all(|image| image == "b"));
    assert_eq!(count(&send(&client, "GET", SETS, &Value::Null).await), 2, "the old one is the history");
    running.abort();
}

#[tokio::test]
async fn a_deployment_reports_why_its_pods_are_rejected() {
    let (client, running) = cluster();
    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    send(&client, "PATCH", "/api/v1/namespaces/default", &enforce).await;
    send(&client, "POST", DEPLOYMENTS, &deployment("a", 3)).await;
    let failure = |one: &Value| {
        let mut conditions = one["status"]["conditions"].as_array().into_iter().flatten().cloned();
        conditions.find(|condition| condition["type"] == "ReplicaFailure")
    };
    let failed = until(&client, &format!("{DEPLOYMENTS}/web"), |one| failure(one).is_some()).await;
    let failed = failure(&failed).unwrap();
    assert_eq!(failed["reason"], "FailedCreate");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("violates PodSecurity \"restricted:latest\""), "{message}");
    running.abort();
}

#[tokio::test]
async fn orphans_that_fit_are_adopted_and_pods_that_fit_no_longer_are_released() {
    let (client, running) = cluster();
    let orphan = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    send(&client, "POST", PODS, &orphan).await;
    send(&client, "POST", SETS, &set("web", 1)).await;
    let path = format!("{PODS}/orphan");
    until(&client, &path, |pod| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet").await;
    send(&client, "PATCH", &path, &json!({"metadata": {"labels": {"app": "other"}}})).await;
    until(&client, &path, |pod| pod["metadata"].get("ownerReferences").is_none()).await;
    until(&client, PODS, |pods| count(pods) == 2).await;
    running.abort();
}

#[tokio::test]
async fn rejected_pods_are_reported_with_the_message_of_admission() {
    let (client, running) = cluster();
    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    send(&client, "PATCH", "/api/v1/namespaces/default", &enforce).await;
    send(&client, "POST", SETS, &set("web", 3)).await;
    let failed = until(&client, &format!("{SETS}/web"), |set| !set["status"]["conditions"].is_null()).await;
    let condition = &failed["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("ReplicaFailure"), &json!("FailedCreate"))
    );
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("violates PodSecurity \"restricted:latest\""), "{message}");
    let events = until(&client, "/api/v1/namespaces/default/events", |events| count(events) > 0).await;
    let event =
        events["items"].as_array().unwrap().iter().find(|event| event["reason"] == "FailedCreate").unwrap();
    assert!(event["message"].as_str().unwrap().starts_with("Error creating: pods \"web-"), "{event}");
    assert_eq!(event["source"]["component"], "replicaset-controller");
    running.abort();
}

#[tokio::test]
async fn controllers_pause_while_kube_controller_manager_leads() {
    let router = Server::builder().disable_plugins(["ServiceAccount".to_owned()]).router().unwrap();
    let client = Client::new(router.clone(), "default");
    // Each controller at work has a handle.
    let handle = Arc::new(());
    let factory = {
        let handle = handle.clone();
        move |account: &str| {
            let held = (!account.is_empty()).then(|| handle.clone());
            let service =
                ServiceBuilder::new().map_request(move |request: http::Request<kube::client::Body>| {
                    let _ = &held;
                    request
                });
            Client::new(service.service(router.clone()), "default")
        }
    };
    let (at_work, paused) = (2 + NAMES.len(), 2);
    let is_eventually = async |handles: usize| {
        let looking = async {
            while Arc::strong_count(&handle) != handles {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), looking).await.expect("the controllers start and stop");
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let held = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-controller-manager"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}});
    let running = tokio::spawn(workloads::run(factory, Selection::default()));

    send(&client, "POST", SETS, &set("first", 1)).await;
    until(&client, PODS, |pods| count(pods) == 1).await;
    is_eventually(at_work).await;
    send(&client, "POST", leases, &held).await;
    is_eventually(paused).await;
    send(&client, "POST", SETS, &set("later", 1)).await;
    assert_eq!(count(&send(&client, "GET", PODS, &Value::Null).await), 1);

    let released = json!({"spec": {"holderIdentity": ""}});
    send(&client, "PATCH", &format!("{leases}/kube-controller-manager"), &released).await;
    until(&client, PODS, |pods| count(pods) == 2).await;
    is_eventually(at_work).await;
    running.abort();
}

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";

fn job(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["template"]["spec"] = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": spec})
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == "True")
}

/// Ends every pod that has not ended, as a kubelet would.
async fn end_pods(client: &Client, phase: &str, code: i64) {
    let pods = send(client, "GET", PODS, &Value::Null).await;
    for pod in pods["items"].as_array().unwrap().iter().filter(|pod| pod["status"]["phase"] == "Pending") {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let status = json!({"status": {"phase": phase, "containerStatuses": [{"name": "c", "image": "i", "imageID": "",
            "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}}}]}});
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        send(client, "PATCH", &path, &status).await;
    }
}

fn reasons(events: &Value) -> Vec<&str> {
    events["items"].as_array().unwrap().iter().filter_map(|event| event["reason"].as_str()).collect()
}

#[tokio::test]
async fn an_indexed_job_completes_when_every_index_has_succeeded() {
    let (client, running) = cluster();
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3});
    send(&client, "POST", JOBS, &job(&spec)).await;
    let pods = until(&client, PODS, |pods| count(pods) == 3).await;
    let first = &pods["items"][0];
    assert_eq!(first["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    assert!(first["spec"]["hostname"].as_str().unwrap().starts_with("work-"), "{first}");
    end_pods(&client, "Succeeded", 0).await;
    let path = format!("{JOBS}/work");
    until(&client, &path, |job| job["status"]["completedIndexes"] == "0-2").await;
    until(&client, PODS, |pods| count(pods) == 4).await;
    end_pods(&client, "Succeeded", 0).await;
    let done = until(&client, &path, |job| has_condition(job, "Complete")).await;
    assert!(has_condition(&done, "SuccessCriteriaMet"), "{done}");
    let status = &done["status"];
    assert_eq!((&status["succeeded"], &status["completedIndexes"]), (&json!(4), &json!("0-3")), "{status}");
    assert!(status["completionTime"].is_string());
    let pods = send(&client, "GET", PODS, &Value::Null).await;
    let finalizers = pods["items"].as_array().unwrap().iter().map(|pod| &pod["metadata"]["finalizers"]);
    assert!(finalizers.into_iter().all(Value::is_null), "every pod is counted");
    let events =
        until(&client, "/api/v1/namespaces/default/events", |events| reasons(events).contains(&"Completed"))
            .await;
    assert_eq!(reasons(&events).iter().filter(|reason| **reason == "SuccessfulCreate").count(), 4);
    running.abort();
}

#[tokio::test]
async fn a_job_fails_at_its_backoff_limit_and_stops_its_pods() {
    let (client, running) = cluster();
    send(&client, "POST", JOBS, &job(&json!({"completions": 2, "parallelism": 2, "backoffLimit": 0}))).await;
    let pods = until(&client, PODS, |pods| count(pods) == 2).await;
    let failed = pods["items"][0]["metadata"]["name"].as_str().unwrap();
    send(&client, "PATCH", &format!("{PODS}/{failed}/status"), &json!({"status": {"phase": "Failed"}})).await;
    let path = format!("{JOBS}/work");
    let job = until(&client, &path, |job| has_condition(job, "Failed")).await;
    let status = &job["status"];
    assert_eq!((&status["failed"], &status["active"]), (&json!(2), &Value::Null), "{status}");
    let last = status["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(last["reason"], "BackoffLimitExceeded");
    until(&client, PODS, |pods| count(pods) == 1).await;
    send(&client, "PATCH", &path, &json!({"spec": {"ttlSecondsAfterFinished": 0}})).await;
    // The garbage collector, which does not run here, ends the deletion.
    let expired = until(&client, &path, |job| job["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(expired["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    running.abort();
}

#[tokio::test]
async fn a_job_is_suspended_and_resumed() {
    let (client, running) = cluster();
    send(&client, "POST", JOBS, &job(&json!({"completions": 2, "parallelism": 2}))).await;
    until(&client, PODS, |pods| count(pods) == 2).await;
    let path = format!("{JOBS}/work");
    send(&client, "PATCH", &path, &json!({"spec": {"suspend": true}})).await;
    until(&client, &path, |job| has_condition(job, "Suspended")).await;
    until(&client, PODS, |pods| count(pods) == 0).await;
    send(&client, "PATCH", &path, &json!({"spec": {"suspend": false}})).await;
    until(&client, PODS, |pods| count(pods) == 2).await;
    let job = until(&client, &path, |job| !has_condition(job, "Suspended")).await;
    assert_eq!(job["status"].get("failed"), None, "pods of a suspended Job have not failed");
    running.abort();
}

#[tokio::test]
async fn a_job_whose_pods_are_rejected_reports_why_and_starts_when_they_are_not() {
    let (client, running) = cluster();
    let level = |level: &str| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    send(&client, "PATCH", "/api/v1/namespaces/default", &level("restricted")).await;
    send(&client, "POST", JOBS, &job(&json!({"completions": 1}))).await;
    let events = until(&client, "/api/v1/namespaces/default/events", |events| count(events) > 0).await;
    let event = &events["items"][0];
    assert_eq!(
        (&event["reason"], &event["source"]["component"]),
        (&json!("FailedCreate"), &json!("job-controller"))
    );
    assert!(
        event["message"].as_str().unwrap().contains("violates PodSecurity \"restricted:latest\""),
        "{event}"
    );
    send(&client, "PATCH", "/api/v1/namespaces/default", &level("privileged")).await;
    until(&client, PODS, |pods| count(pods) == 1).await;
    running.abort();
}

#[tokio::test]
async fn a_cron_job_starts_jobs_and_keeps_no_more_than_its_history() {
    let (client, running) = cluster();
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": {
        "schedule": "@every 1s", "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0,
        "jobTemplate": {"spec": job(&json!({}))["spec"]}}});
    send(&client, "POST", CRON_JOBS, &cron_job).await;
    let path = format!("{CRON_JOBS}/tick");
    let started = until(&client, &path, |one| one["status"]["active"].is_array()).await;
    let name = started["status"]["active"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("tick-"), "{name}");
    until(&client, PODS, |pods| count(pods) == 1).await;
    send(&client, "PATCH", &path, &json!({"spec": {"suspend": true}})).await;
    end_pods(&client, "Succeeded", 0).await;
    let ended = until(&client, &path, |one| one["status"]["lastSuccessfulTime"].is_string()).await;
    assert_eq!(ended["status"].get("active"), None);
    until(&client, JOBS, |jobs| count(jobs) == 0).await;
    let events = send(&client, "GET", "/api/v1/namespaces/default/events", &Value::Null).await;
    for reason in ["SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"] {
        assert!(reasons(&events).contains(&reason), "{reason}: {:?}", reasons(&events));
    }
    running.abort();
}

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

/// The images of the pods that stay.
fn images(pods: &Value) -> Vec<&str> {
    let staying =
        pods["items"].as_array().unwrap().iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    staying.filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str()).collect()
}

/// Reports pods as ready until something holds.
async fn run_until(client: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let looking = async {
        loop {
            run_pods(client).await;
            let found = send(client, "GET", path, &Value::Null).await;
            if wanted(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), looking)
        .await
        .unwrap_or_else(|_| panic!("{path} does not change"))
}

#[tokio::test]
async fn a_daemon_set_has_a_pod_on_each_node_and_rolls_back() {
    let (client, running) = cluster();
    for name in ["n1", "n2"] {
        send(&client, "POST", "/api/v1/nodes", &node(name)).await;
    }
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template("a")}});
    send(&client, "POST", DAEMON_SETS, &set).await;
    let pods = until(&client, PODS, |pods| count(pods) == 2).await;
    let target = |pod: &Value| {
        let term =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
        pod.pointer(&format!("{term}/matchFields/0/values/0")).unwrap().clone()
    };
    let mut targets: Vec<String> =
        pods["items"].as_array().unwrap().iter().map(|pod| target(pod).to_string()).collect();
    targets.sort();
    assert_eq!(targets, ["\"n1\"", "\"n2\""]);
    let path = format!("{DAEMON_SETS}/agent");
    run_until(&client, &path, |set| set["status"]["numberAvailable"] == 2).await;
    let image = |image: &str| json!({"spec": {"template": template(image)}});
    send(&client, "PATCH", &path, &image("b")).await;
    run_until(&client, PODS, |pods| images(pods) == ["b", "b"]).await;
    send(&client, "PATCH", &path, &image("a")).await;
    run_until(&client, PODS, |pods| images(pods) == ["a", "a"]).await;
    let revisions = until(&client, REVISIONS, |all| count(all) == 2).await;
    let mut numbers: Vec<i64> =
        revisions["items"].as_array().unwrap().iter().filter_map(|one| one["revision"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3], "the first template is the third revision");
    send(&client, "DELETE", "/api/v1/nodes/n2", &Value::Null).await;
    until(&client, &path, |set| set["status"]["desiredNumberScheduled"] == 1).await;
    running.abort();
}

#[tokio::test]
async fn a_stateful_set_makes_its_pods_one_after_the_other() {
    let (client, running) = cluster();
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"replicas": 2,
        "serviceName": "db", "selector": {"matchLabels": {"app": "web"}}, "template": template("a"),
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    send(&client, "POST", STATEFUL_SETS, &set).await;
    let path = format!("{STATEFUL_SETS}/db");
    until(&client, &path, |set| set["status"]["replicas"] == 1).await;
    assert_eq!(count(&send(&client, "GET", PODS, &Value::Null).await), 1, "the second waits for the first");
    let ready = run_until(&client, &path, |set| set["status"]["availableReplicas"] == 2).await;
    assert_eq!(ready["status"]["currentRevision"], ready["status"]["updateRevision"]);
    let claims =
        until(&client, "/api/v1/namespaces/default/persistentvolumeclaims", |all| count(all) == 2).await;
    assert_eq!(claims["items"][0]["metadata"]["name"], "data-db-0");
    assert_eq!(claims["items"][0]["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    send(&client, "PATCH", &path, &json!({"spec": {"template": template("b")}})).await;
    let is_done = |set: &Value| {
        set["status"]["updatedReplicas"] == 2
            && set["status"]["currentRevision"] == set["status"]["updateRevision"]
    };
    run_until(&client, &path, is_done).await;
    let pods = send(&client, "GET", PODS, &Value::Null).await;
    assert_eq!(images(&pods), ["b", "b"]);
    assert_eq!(count(&send(&client, "GET", REVISIONS, &Value::Null).await), 2, "the old one is the history");
    send(&client, "PATCH", &path, &json!({"spec": {"replicas": 1}})).await;
    let left = run_until(&client, PODS, |pods| count(pods) == 1).await;
    assert_eq!(left["items"][0]["metadata"]["name"], "db-0", "the highest ordinal goes first");
    running.abort();
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Gives every pod an address and reports it as ready.
async fn address_pods(client: &Client) {
    let pods = send(client, "GET", PODS, &Value::Null).await;
    for (at, pod) in pods["items"].as_array().unwrap().iter().enumerate() {
        let ip = format!("10.1.0.{}", at + 1);
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        send(client, "PATCH", &path, &status).await;
    }
}

#[tokio::test]
async fn endpoints_and_slices_follow_the_pods_of_a_service() {
    let (client, running) = cluster();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]}});
    send(&client, "POST", "/api/v1/namespaces/default/services", &service).await;
    until(&client, SLICES, |slices| count(slices) == 1).await;
    send(&client, "POST", SETS, &set("web", 2)).await;
    until(&client, PODS, |pods| count(pods) == 2).await;
    address_pods(&client).await;
    let ready = |slices: &Value| {
        let endpoints = slices["items"][0]["endpoints"].as_array().into_iter().flatten();
        endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
    };
    let slices = until(&client, SLICES, |slices| ready(slices) == 2).await;
    let slice = &slices["items"][0];
    assert_eq!(count(&slices), 1, "the empty one is used");
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    assert_eq!(slice["ports"][0]["port"], 8080);
    let path = "/api/v1/namespaces/default/endpoints/web";
    let addresses = |one: &Value| one["subsets"][0]["addresses"].as_array().map_or(0, Vec::len);
    until(&client, path, |endpoints| addresses(endpoints) == 2).await;
    send(&client, "PATCH", &format!("{SETS}/web"), &json!({"spec": {"replicas": 1}})).await;
    until(&client, path, |endpoints| addresses(endpoints) == 1).await;
    until(&client, SLICES, |slices| ready(slices) == 1).await;
    running.abort();
}

#[tokio::test]
async fn endpoints_that_users_write_are_mirrored() {
    let (client, running) = cluster();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]}});
    send(&client, "POST", "/api/v1/namespaces/default/services", &service).await;
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "ext"},
        "subsets": [{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}]});
    let path = "/api/v1/namespaces/default/endpoints";
    send(&client, "POST", path, &endpoints).await;
    let slices = until(&client, SLICES, |slices| count(slices) == 1).await;
    assert_eq!(slices["items"][0]["endpoints"][0]["addresses"], json!(["10.9.0.1"]));
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    send(&client, "PATCH", &format!("{path}/ext"), &skip).await;
    until(&client, SLICES, |slices| count(slices) == 0).await;
    running.abort();
}

#[tokio::test]
async fn a_disruption_budget_counts_healthy_pods() {
    let (client, running) = cluster();
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    send(&client, "POST", DEPLOYMENTS, &deployment("a", 3)).await;
    send(&client, "POST", path, &budget).await;
    let path = format!("{path}/web");
    until(&client, &path, |budget| budget["status"]["expectedPods"] == 3).await;
    let none = send(&client, "GET", &path, &Value::Null).await;
    assert_eq!(none["status"]["disruptionsAllowed"], 0, "no pod is ready");
    let healthy = run_until(&client, &path, |budget| budget["status"]["currentHealthy"] == 3).await;
    let status = &healthy["status"];
    assert_eq!((&status["disruptionsAllowed"], &status["desiredHealthy"]), (&json!(1), &json!(2)));
    assert_eq!(status["conditions"][0]["reason"], "SufficientPods");
    running.abort();
}
