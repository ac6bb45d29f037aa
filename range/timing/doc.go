// Package timing says where the time of a request goes. A Request has the parts of one request on a
// data node, one after the other and without gaps, so that the parts add up to the whole.
//
// # Data flow
//
// The node makes a Request for each request that arrives (Start). Whatever has the request calls
// Enter when the request goes over into another part: it is taken from the queue, it waits for a
// lock, it reads. What many requests share, such as a log entry, notes its own times, and enters
// them once it is done (EnterAt). The node reads Total and Spent when the request is answered, and
// gives the Request back (Release).
//
// # Cost
//
// A request that waits for nothing costs a pooled Request, two assignments and a reading of the
// monotonic clock. All methods work on a nil Request, and do nothing: that is how timing is off.
//
// # Invariants
//
//   - A Request is used by one goroutine at a time: by the one that has the request.
//   - Times within a Request never decrease. A time that is earlier than the previous one counts as
//     equal to it: parts are never negative, and their sum is the total.
//   - Nothing touches a Request after Release.
//
// The package imports nothing of Tidemark.
package timing
