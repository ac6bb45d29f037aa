// Package coordination has the services by which servers use a member's part of the coordination
// store, the core's second store, which has what clients coordinate.
//
//   - Service and Peers: members forward commands and reads to the member that leads the store.
//   - Users: servers follow the users and roles that lie in the store.
//
// The services ask for the stores at every call (Parts), since a server serves before they are
// open. Who the members of the coordination store are is decided elsewhere (package membership).
package coordination
