//! `palisade rollout pause`, `resume` and `rollback`: what the administrator requests of the waves.

use palisade_controllers::{
    api::{Api, Patch},
    observe::ROLLOUT,
};
use palisade_policy::enforcement::waves::{KIND, NAME};
use serde_json::{Value, json};

use crate::{
    cluster::ClusterArgs,
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// The field manager of these commands.
const MANAGER: &str = "palisade-rollout";

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing moves.
    Pause,
    /// Everything moves again.
    Resume,
    /// A wave and those after it are taken back; without a name, the current one.
    Rollback(Option<String>),
}

/// The merge patch of a request, and what it does in a sentence.
fn patch(change: &Change, object: &Value, now: &str) -> Result<(Value, String), Failure> {
    let current = object["status"]["currentWave"].as_str().unwrap_or_default();
    match change {
        Change::Pause => Ok((json!({"spec": {"paused": true}}), "the waves are paused".to_owned())),
        Change::Resume => Ok((
            json!({"spec": {"paused": false, "rollback": null, "resumedAt": now}}),
            "the waves go on".to_owned(),
        )),
        Change::Rollback(wave) => {
            let waves: Vec<&str> = object["spec"]["waves"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|wave| wave["name"].as_str())
                .collect();
            // Once all are done, the last one is what there is to take back.
            let wave = match wave
                .as_deref()
                .or((!current.is_empty()).then_some(current))
                .or(waves.last().copied())
            {
                Some(wave) if waves.contains(&wave) => wave,
                Some(wave) => {
                    return Err(Failure::input(format!("no wave {wave:?}: waves are {}", waves.join(", "))));
                }
                None => return Err(Failure::input(format!("{KIND} {NAME} has no waves"))),
            };
            Ok((
                json!({"spec": {"rollback": wave}}),
                format!(
                    "wave {wave:?} and those after it are taken back; \"palisade rollout resume\" begins them again"
                ),
            ))
        }
    }
}

/// Requests it of a cluster.
pub(super) async fn change(
    cluster: &ClusterArgs,
    change: &Change,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let cluster = cluster.connect().await?;
    let api = Api::new(cluster.client.clone());
    let path = ROLLOUT.object(None, NAME);
    let object = api.get(&path).await.map_err(|error| cluster.error(error))?;
    let object = object.ok_or_else(|| Failure::input(format!("the cluster has no {KIND} {NAME:?}")))?;
    let now = jiff::Timestamp::now().as_second();
    let (request, done) = patch(change, &object, &palisade_base::time::rfc3339(now))?;
    api.patch(&path, MANAGER, Patch::Merge, &request).await.map_err(|error| cluster.error(error))?;
    terminal.report(done);
    Ok(Exit::Clean)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Change, patch};

    #[test]
    fn requests_are_fields_of_the_spec() {
        let object = json!({"spec": {"waves": [{"name": "dev"}, {"name": "prod"}]}, "status": {"currentWave": "prod"}});
        let done = json!({"spec": object["spec"], "status": {"currentWave": ""}});
        for (change, object, expected) in [
            (Change::Pause, &object, Some(json!({"paused": true}))),
            (Change::Resume, &object, Some(json!({"paused": false, "rollback": null, "resumedAt": "now"}))),
            (Change::Rollback(None), &object, Some(json!({"rollback": "prod"}))),
            (Change::Rollback(Some("dev".to_owned())), &object, Some(json!({"rollback": "dev"}))),
            (Change::Rollback(None), &done, Some(json!({"rollback": "prod"}))),
            (Change::Rollback(Some("x".to_owned())), &object, None),
            (Change::Rollback(None), &json!({}), None),
        ] {
            let found = patch(&change, object, "now").ok().map(|(patch, _)| patch["spec"].clone());
            assert_eq!(found, expected, "{change:?}");
        }
    }
}
