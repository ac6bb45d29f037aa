// Package users serves etcd's Auth service, and the permissions that roles have for the data of
// keyspaces.
//
// A change of users and roles is a command of the store, for a client that may administer.
// Passwords are hashed and compared by package passwords, a few at a time, in turns by party
// (Callers).
//
// # Enabling and disabling
//
// Servers that hold the data of keyspaces check users too, and may be cut off from this store. So
// before authentication is enabled all of these servers must follow the store (Keyspaces.Guard),
// and after authentication is disabled they need not any more (Keyspaces.Release). Enabling and
// disabling may run at the same time on several members, so a release names the version that it
// undoes.
//
// The only state of a Server is the queue of package passwords.
package users
