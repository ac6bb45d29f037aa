// Package authorize knows who makes a call of the etcd API, decides whether the call may be made,
// and logs what came of it.
//
// # Users
//
// The user of a call is named by the token in its metadata or, without a token and with
// Config.CertificateUsers, by the common name of the client's certificate, as in etcd. The name
// counts only while authentication is enabled. Tokens are signed with a key that is part of the
// store's state, so every member verifies the tokens of every other member.
//
// # Decisions
//
// What a user may do is decided by package authority, from users and roles as this member knows
// them. A refusal counts only after this member was up to date: Permit confirms that, and decides
// again. Execute adds the user to a command, because each member decides again when it applies the
// command; a member that knew older users and roles than those does the command again.
//
// # Audit
//
// The guard of the API gives each call a Call (WithCall). The identifier of the client notes the
// user there, and Audit logs the call at its end if it was refused for want of permission, or
// administers. The number of lines for calls without success is bounded.
//
// An Authorizer owns the uses of tokens, the bounds of the log and the metrics, each with a lock of
// its own. Its methods may be called from any goroutine.
package authorize
