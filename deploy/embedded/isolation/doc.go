// Package isolation disconnects servers of one process from each other, as a failed switch does. A
// Network makes the connections of servers. It can end the connections of one server and refuse new
// ones. It is for demos that show a failure of the network. It must not import anything of the
// project.
//
// A Network has one lock. Only Close of connections is called while it is held.
package isolation
