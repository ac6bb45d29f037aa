// Package users serves etcd's Auth service, and the permissions that roles have for the data of
// keyspaces.
//
// A change of users and roles is a command of the store, for a client that may administer.
// Passwords are hashed and compared by package passwords, a few at a time, in turns by party
// (Callers).
//
// # Enabling and disabling
//
// Users guard the data of keyspaces on servers that may be cut off from this store. So before
// authentication is enabled all of these servers have to follow the store (Keyspaces.Guard), and
// after authentication is disabled they need not any more (Keyspaces.Release). Enabling and
// disabling may run at the same time on several members, so what is undone is named by its version.
//
// A Server has no state but the turns of package passwords.
package users
