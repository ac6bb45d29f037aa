// Package authority decides who may do what with a store: users, roles with permissions on ranges
// of keys, and tokens, all as etcd has them. It is functions of tables and requests, without a
// clock, a random number or a database, so that every member comes to the same.
//
// A State is one version of the tables and never changes. The store makes one of its records when
// it opens, and the next with Change, which also says which records to write. Any goroutine may use
// a State.
//
// # Who
//
// A command names its client as a storepb.AuthInfo: the user, and the revision of users and roles
// at which the member that took the command made sure of that user. No AuthInfo at all is a command
// of the servers themselves, such as the end of a lease that ran out, which may do anything. A
// revision of 0 is a client that has named no user. A command is checked when it is applied,
// so that what was let in by older rules is refused by newer ones (ErrOldRevision).
//
// # Tokens
//
// A token names a user, the user's generation and the time at which it was made, and is signed with
// a key that is part of the state, so that each member can verify what another one has made. The
// key is new whenever authentication is enabled, and the generation is new with each password: so a
// token ends with its user, with the user's password and with the authentication. What the user may
// do is looked up anew for each command.
//
// The package imports storepb and nothing else of this module.
package authority
