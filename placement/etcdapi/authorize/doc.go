// Package authorize determines who makes a call of the etcd API, decides whether the call may be
// made, and logs the result.
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
// Package authority decides what a user may do, from the users and roles that this member knows. A
// refusal counts only if this member was up to date: Permit makes sure of that, and decides again.
// Execute adds the user to a command, because each member decides again when it applies the
// command; if this member knew older users and roles than those, it executes the command again.
//
// # Audit
//
// The guard of the API gives each call a Call (WithCall). The identification of the client notes
// the user there, and Audit logs the call at its end if it was refused for want of permission, or
// administers. The number of lines for calls without success is bounded.
//
// An Authorizer owns the record of tokens in use, the bounds of the log and the metrics, each with
// a lock of its own. Its methods may be called from any goroutine.
package authorize
