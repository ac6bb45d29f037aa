// Package coordination has the services through which servers use a member's part of the
// coordination store. The coordination store is the core's second store, and has the data of the
// etcd API.
//
//   - Service and Peers: members forward commands and reads to the member that leads the store.
//   - Users: servers follow the users and roles that lie in the store.
//
// The services ask for the stores at every call (Parts), because a server serves before the stores
// are open. Package membership decides which members the coordination store has.
package coordination
