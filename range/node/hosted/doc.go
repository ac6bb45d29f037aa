// Package hosted holds what all rooms of a data node see: the Replicas in a Registry, the
// leadership of each, and the Node with the databases, the host, the table and the clock.
//
// A room keeps its own state. A Replica has those parts of it that applying an entry or taking a
// request must find without a lock: each such field names the room that sets it.
//
// The locks of the Registry's writers and of the Leaders are leaves: nothing is called with one of
// them held.
package hosted
