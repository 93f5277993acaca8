//! What a key may ask of the server. A role takes away and never adds: what a call may do is the policy's.

use serde::{Deserialize, Serialize};

/// The role of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs the server: makes tenants and gives them what they have. Sees nothing of what they do.
    Operator,
    /// Everything of one tenant.
    Owner,
    /// Uploads the project, sets secrets, uses files, calls and runs.
    Developer,
    /// Answers questions whether calls may be made.
    Approver,
    /// Reads the record, the usage and the policy.
    Auditor,
    /// Calls tools and runs agents.
    Caller,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Tenants, their keys, classes, secrets and projects, over all of the server.
    Administer,
    /// Lists tools, and what their parameters are.
    ReadTools,
    /// Calls a tool.
    Call,
    /// Begins and stops runs.
    Run,
    /// Reads runs and sessions: what was said and called.
    ReadRuns,
    /// Lists questions that wait for an answer, and answers them.
    Approve,
    /// Reads the audit log.
    ReadAudit,
    /// Reads what was used, and what may be.
    ReadUsage,
    /// Reads the effective policy.
    ReadPolicy,
    /// Reads files of the workspace.
    ReadFiles,
    /// Writes files of the workspace.
    WriteFiles,
    /// Replaces the project.
    WriteProject,
    /// Names secrets, sets and removes them. Nobody reads one.
    WriteSecrets,
    /// Makes and removes keys of the own tenant.
    ManageKeys,
    /// Names where events are sent.
    ManageWebhooks,
    /// Makes and removes workspaces of the own tenant.
    ManageWorkspaces,
}

impl Action {
    /// Whether it is about a tenant as a whole, and not about one of its workspaces.
    pub fn is_of_whole_tenant(self) -> bool {
        matches!(
            self,
            Self::ReadAudit
                | Self::WriteProject
                | Self::WriteSecrets
                | Self::ManageKeys
                | Self::ManageWebhooks
                | Self::ManageWorkspaces
        )
    }
}

impl Role {
    /// All of them, the mightiest first.
    pub const ALL: [Self; 6] =
        [Self::Operator, Self::Owner, Self::Developer, Self::Approver, Self::Auditor, Self::Caller];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Owner => "owner",
            Self::Developer => "developer",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
            Self::Caller => "caller",
        }
    }

    /// Whether a key of this role may ask for that.
    pub fn may(self, action: Action) -> bool {
        use Action::{
            Administer, Approve, Call, ManageWebhooks, ManageWorkspaces, ReadAudit, ReadFiles, ReadPolicy, ReadRuns,
            ReadTools, ReadUsage, Run, WriteFiles, WriteProject, WriteSecrets,
        };
        match self {
            Self::Operator => action == Administer,
            Self::Owner => action != Administer,
            Self::Developer => matches!(
                action,
                ReadTools
                    | Call
                    | Run
                    | ReadRuns
                    | ReadUsage
                    | ReadPolicy
                    | ReadFiles
                    | WriteFiles
                    | WriteProject
                    | WriteSecrets
                    | ManageWebhooks
                    | ManageWorkspaces
            ),
            Self::Approver => matches!(action, Approve | ReadTools | ReadRuns),
            Self::Auditor => matches!(action, ReadAudit | ReadUsage | ReadPolicy | ReadTools | ReadRuns),
            Self::Caller => matches!(action, ReadTools | Call | Run | ReadRuns | ReadUsage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIONS: [Action; 16] = [
        Action::Administer,
        Action::ReadTools,
        Action::Call,
        Action::Run,
        Action::ReadRuns,
        Action::Approve,
        Action::ReadAudit,
        Action::ReadUsage,
        Action::ReadPolicy,
        Action::ReadFiles,
        Action::WriteFiles,
        Action::WriteProject,
        Action::WriteSecrets,
        Action::ManageKeys,
        Action::ManageWebhooks,
        Action::ManageWorkspaces,
    ];

    /// The whole table, one letter for each action that a role may ask for.
    #[test]
    fn each_role_has_its_actions_and_no_other() {
        let table = Role::ALL.map(|role| {
            let may = ACTIONS.map(|action| if role.may(action) { 'x' } else { '.' });
            format!("{:<9} {}", role.name(), may.iter().collect::<String>())
        });
        assert_eq!(
            table,
            [
                "operator  x...............",
                "owner     .xxxxxxxxxxxxxxx",
                "developer .xxxx..xxxxxx.xx",
                "approver  .x..xx..........",
                "auditor   .x..x.xxx.......",
                "caller    .xxxx..x........",
            ]
        );
    }
}
