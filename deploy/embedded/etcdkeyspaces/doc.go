// Package etcdkeyspaces shows the keyspaces of a cluster to the etcd API (Keyspaces), and has all
// servers guard their data when authentication is enabled. Enabling waits until every server can
// tell servers from clients, and follows users and roles; it names the servers that do not.
//
// Keyspaces has no state: the core's leader has the answers.
package etcdkeyspaces
