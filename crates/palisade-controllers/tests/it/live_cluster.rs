//! What a cluster may do to controllers: lack kinds, have others lead, forget versions, go away.

use std::{sync::Arc, time::Duration};

use kube::Client;
use palisade_controllers::{
    api::{LEASES, NAMESPACES, Patch},
    crds,
    leader::{Candidate, Timing},
    runner::{Options, Runner},
    time::micros,
};
use palisade_policy::{
    enforcement::{
        instances::{Configuration, NAMESPACE, WEBHOOK, instance_lease, read_config_map},
        mode::Release,
    },
    standards::level::Level,
};
use serde_json::json;
use tokio::sync::watch;

use crate::live::{Fate, Live};

const CONFIGURATION: &str = "/api/v1/namespaces/palisade-system/configmaps/pod-security-configuration";
const WARN: &str = "pod-security.kubernetes.io/warn";

#[tokio::test(start_paused = true)]
async fn a_plain_cluster_is_served_as_far_as_it_goes_and_kinds_may_come_later() {
    let live = Live::plain().await;
    live.namespace("team", json!({})).await;
    let _controllers = live.controllers(Release::Enforce, None);
    live.settle().await;
    let namespace = live.get_namespace("team").await;
    assert_eq!(namespace["metadata"]["labels"].get(WARN), None, "nothing is known without constraints");
    assert_eq!(live.requested().await.as_deref(), Some("privileged"), "nothing moves without the kind");
    crds::install(&live.api, true).await.unwrap();
    crds::install(&live.api, true).await.unwrap();
    // Kinds that are missing are looked for now and then.
    tokio::time::sleep(Duration::from_secs(15)).await;
    live.settle().await;
    assert_eq!(live.mode().await, (String::new(), "Restricted".to_owned()));
    assert_eq!(live.enforce_label("team").await.as_deref(), Some("restricted"));
}

#[tokio::test(start_paused = true)]
async fn one_of_several_leads_and_the_next_follows_at_once() {
    let live = Live::start().await;
    live.namespace("team", json!({})).await;
    let start = |name: &str| {
        let options = Options {
            release: Release::Evaluate,
            identity: Some(name.to_owned()),
            levels: palisade_policy::enforcement::level::LevelSource::Constraints,
            ..Options::default()
        };
        let runner = Runner::new(Client::new(live.router.clone(), "default"), options);
        let (stop, shutdown) = watch::channel(false);
        (Arc::clone(&runner), stop, tokio::spawn(runner.run(shutdown)))
    };
    let (first, stop_first, first_task) = start("first");
    live.settle().await;
    let (second, _stop_second, _second_task) = start("second");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let leads = |runner: &Runner| runner.metrics().contains("palisade_controller_leader 1");
    assert!(leads(&first) && !leads(&second));
    stop_first.send(true).unwrap();
    first_task.await.unwrap();
    // Given up, not run out: the next one need not wait for the duration.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(leads(&second));
    live.label("team", "security.openshift.io/scc.podSecurityLabelSync", json!("true")).await;
    live.settle().await;
    assert_eq!(live.get_namespace("team").await["metadata"]["labels"][WARN], "restricted");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_steps_down_before_others_take_over() {
    let live = Live::start().await;
    let timing = Timing::default();
    let (api, cut) = live.severable();
    let mut first = Candidate::new(api, "first", timing);
    first.acquire().await;
    let mut second = Candidate::new(live.api.clone(), "second", timing);
    let began = tokio::time::Instant::now();
    cut.send(true).unwrap();
    let (stepped_down, taken_over) = tokio::join!(
        async {
            first.hold().await;
            began.elapsed()
        },
        async {
            second.acquire().await;
            began.elapsed()
        }
    );
    assert!(stepped_down < taken_over, "{stepped_down:?} {taken_over:?}");
    assert!(taken_over < Duration::from_secs(25), "{taken_over:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_away_is_watched_again_from_the_beginning() {
    let live = Live::start().await;
    live.namespace("gone", json!({})).await;
    live.namespace("team", json!({})).await;
    live.pod("team", "agent", json!({"privileged": true})).await;
    let (api, cut) = live.severable();
    let options = Options {
        release: Release::Evaluate,
        levels: palisade_policy::enforcement::level::LevelSource::Constraints,
        ..Options::default()
    };
    let runner = Runner::new(api.client().clone(), options);
    let (_stop, shutdown) = watch::channel(false);
    let task = tokio::spawn(Arc::clone(&runner).run(shutdown));
    live.settle().await;
    assert_eq!(live.violating().await.len(), 1);
    cut.send(true).unwrap();
    tokio::time::sleep(Duration::from_secs(400)).await;
    // No watch reports this as it happens.
    live.api.delete("/api/v1/namespaces/team/pods/agent").await.unwrap();
    live.api.delete(&NAMESPACES.object(None, "gone")).await.unwrap();
    live.namespace("new", json!({})).await;
    cut.send(false).unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    live.settle().await;
    assert!(live.violating().await[0].starts_with("Previous team"));
    assert_eq!(live.get_namespace("new").await["metadata"]["labels"][WARN], "restricted");
    let observed = runner.observed();
    assert!(observed.lock().failing().is_none());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn users_override_and_a_double_upgrade_goes_unchecked() {
    let live = Live::start().await;
    crate::live_rollout::fill(&live).await;
    live.label("fine", "pod-security.kubernetes.io/enforce", json!("baseline")).await;
    // From n-1 straight to n+1: nothing was evaluated.
    live.phase(Release::Introduce, None, &Fate::default()).await;
    live.phase(Release::Enforce, None, &Fate::default()).await;
    assert_eq!(live.mode().await, (String::new(), "Restricted".to_owned()));
    assert_eq!(live.enforce_label("fine").await.as_deref(), Some("baseline"), "the user's own");
    assert_eq!(live.enforce_label("by-account").await.as_deref(), Some("privileged"));
    assert_eq!(live.enforce_label("by-user").await.as_deref(), Some("restricted"));
    live.request_mode("Legacy").await;
    live.phase(Release::Enforce, None, &Fate::default()).await;
    assert_eq!(live.mode().await, ("Legacy".to_owned(), "Legacy".to_owned()));
    assert_eq!(live.enforce_label("fine").await.as_deref(), Some("baseline"));
    assert_eq!(live.enforce_label("by-account").await, None);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_does_not_follow_holds_the_rollout_up() {
    let live = Live::start().await;
    live.namespace("team", json!({})).await;
    let path = LEASES.collection(Some(NAMESPACE));
    let lease = instance_lease(WEBHOOK, "stuck", &Configuration::of(Level::Privileged), &micros());
    live.settle().await;
    live.api.create(&path, "test", &lease).await.unwrap();
    let _controllers = live.controllers(Release::Enforce, None);
    live.settle().await;
    assert_eq!(live.mode().await.1, "Progressing");
    assert_eq!(live.condition("Progressing").await, ("True".to_owned(), "RollingOut".to_owned()));
    let message = live.message("Progressing").await;
    assert!(
        message.contains("webhook stuck enforces privileged, by a configuration of its own"),
        "{message}"
    );
    // It is never seen to renew its report, so after a minute it no longer counts.
    tokio::time::sleep(Duration::from_secs(70)).await;
    live.settle().await;
    assert_eq!(live.mode().await.1, "Restricted");
}

#[tokio::test(start_paused = true)]
async fn a_live_replica_with_an_old_version_holds_the_rollout_up_until_it_follows() {
    let live = Live::start().await;
    live.namespace("team", json!({})).await;
    live.phase(Release::Evaluate, None, &Fate::default()).await;
    let path = LEASES.object(Some(NAMESPACE), "pod-security-webhook-slow");
    let renew = async |running: &Configuration| {
        let lease = instance_lease(WEBHOOK, "slow", running, &micros());
        live.api.patch(&path, "test", Patch::Apply { force: true }, &lease).await.unwrap();
    };
    // It even enforces the right level, but by a version from before: another one may be on its way to it.
    let old = Configuration { version: Some("1".to_owned()), ..Configuration::of(Level::Restricted) };
    renew(&old).await;
    let _controllers = live.controllers(Release::Enforce, None);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        renew(&old).await;
    }
    assert_eq!(live.mode().await.1, "Progressing", "alive, and not there yet");
    let message = live.message("Progressing").await;
    assert!(message.ends_with("yet: webhook slow has not applied the current configuration"), "{message}");
    let map = live.api.get(CONFIGURATION).await.unwrap().unwrap();
    let new = read_config_map(&map).unwrap();
    renew(&new).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(live.mode().await.1, "Restricted");
    // The ConfigMap gets a label. Instances enforce the same as before, so nothing is reverted.
    let before = live.config().await;
    let change = json!({"metadata": {"labels": {"touched": "yes"}}});
    live.api.patch(CONFIGURATION, "test", Patch::Merge, &change).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(live.config().await, before, "not one write");
}

#[tokio::test(start_paused = true)]
async fn a_full_pass_writes_nothing_where_nothing_changed() {
    let live = Live::start().await;
    crate::live_rollout::fill(&live).await;
    let controllers = live.controllers(Release::Evaluate, None);
    live.settle().await;
    let state = async || (live.config().await, live.list(NAMESPACES, None).await, live.reported().await);
    let before = state().await;
    // Longer than the interval at which everything is evaluated anew.
    tokio::time::sleep(Duration::from_hours(5)).await;
    assert_eq!(state().await, before);
    assert!(controllers.runner.metrics().contains("palisade_controller_synced 1"));
}
