// Package authority decides who may do what with a store: users, roles with permissions on ranges
// of keys, and tokens, all as etcd has them. It consists of functions of tables and requests,
// without a clock, random numbers or a database, so that every member reaches the same decision.
//
// A State is one version of the tables and never changes. The store makes a State from its records
// when it opens, and each next State with Change, which also returns the records to write. Any
// goroutine may use a State.
//
// # Who
//
// A command names its client as a storepb.AuthInfo: the user, and the revision of users and roles
// at which the member that accepted the command authenticated the user. A command without an
// AuthInfo comes from a server, such as the end of an expired lease, and may do anything. A
// revision of 0 means a client without a user. A command is checked when it is applied, so that a
// command accepted under older rules is refused under newer ones (ErrOldRevision).
//
// # Tokens
//
// A token names a user, the user's generation and the time at which it was made, and is signed with
// a key that is part of the state, so that each member can verify the tokens of the others.
// Enabling authentication makes a new key, and a new password makes a new generation. So a token
// becomes invalid with its user, with the user's password, and with authentication. The user's
// permissions are looked up anew for each command.
//
// Of this module, the package imports only storepb.
package authority
