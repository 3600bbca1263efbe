//! Creating the configured databases.
//!
//! Those that do not exist yet are proposed one at a time, since each takes the next id, once every voter of the metadata has registered: all of
//! them hold it. A database that exists stays as it is, whatever the configuration says by now.

use crate::command::Command;
use crate::driver::{Action, Coordinator};
use crate::metadata::Metadata;

impl Coordinator {
    /// Proposes the first configured database that is missing, unless one is under way.
    pub(crate) fn create_missing(&mut self, metadata: &Metadata, out: &mut Vec<Action>) {
        let now = self.now;
        let overdue_ms = self.session_ms;
        self.creating.retain(|_, at| now - *at < overdue_ms);
        let all_registered = self.voters.iter().all(|voter| metadata.incarnation(*voter).is_some());
        if self.voters.is_empty() || !all_registered || !self.creating.is_empty() {
            return;
        }
        let Some((name, rule)) = self.databases.iter().find(|(name, _)| metadata.partition_named(name).is_none())
        else {
            return;
        };
        let mut replicas = self.voters.clone();
        replicas.sort_unstable();
        assert!(crate::record::sorted(&replicas), "voters are named once: {replicas:?}");
        self.creating.insert(name.clone(), now);
        out.push(Action::Propose(Command::CreatePartition {
            id: metadata.next_partition(),
            name: name.clone(),
            rule: *rule,
            replicas,
        }));
    }
}
