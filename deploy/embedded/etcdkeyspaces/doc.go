// Package etcdkeyspaces gives the etcd API access to the keyspaces of a cluster (Keyspaces). It
// also makes all servers protect the data of keyspaces when authentication is enabled. Enabling
// waits until every server can tell servers from clients, and follows users and roles. If it fails,
// the error names the servers that do not.
//
// Keyspaces has no state: it asks the core's leader.
package etcdkeyspaces
