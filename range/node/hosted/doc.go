// Package hosted is what a data node holds, as all of its rooms see it: the Replicas in a Registry,
// which of them lead, and the Node with the databases, the host, the table and the clock.
//
// A room keeps its own state. What a Replica has of it is what applying an entry or taking in a
// request must find without a lock: each such field names the room that sets it.
//
// The locks of the Registry's writers and of the Leaders are leaves: nothing is called with one of
// them held.
package hosted
