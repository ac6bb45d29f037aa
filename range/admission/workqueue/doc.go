// Package workqueue decides when a request of a client may begin. A node that is asked for more
// than it can bear works on few requests at a time, and the others wait in a Queue, where tenants
// have fair shares and priorities count.
//
// # Data flow
//
//	Enter   asks whether requests may begin at once: they may while nothing waits and the limit
//	        allows it
//	Add     has a request wait, or says why it cannot
//	Take    takes out the requests that may begin now; Taken says that they have begun, in order
//	Leave   says that requests are answered
//	Charge  corrects what a request has cost its tenant, when that is known
//
// # The limit
//
// The limit is the number of requests at work: those that have begun and are not answered. It falls
// by a tenth at each look at which goroutines had to wait for a processor, to the least limit at
// the lowest, and it rises by a sixteenth at each look at which they had not and the limit was
// reached. So the requests wait in the queue, where the order is known, and not for a processor,
// where it is not (additive increase, multiplicative decrease: Chiu and Jain, "Analysis of the
// increase and decrease algorithms for congestion avoidance", 1989; the signal is that of
// CockroachDB's admission control).
//
// A request that is not answered after four looks waits for something else than a processor: a
// lock, a disk, a quorum. The request no longer counts. So requests that wait for a lock do not
// keep out the one whose end frees the lock, and a partition without a quorum does not keep out
// the requests to other partitions.
//
// # Order
//
// Requests of low priority begin while no others wait, and then take at most half of the limit;
// while others wait, one request in 32 is of low priority. Of the others, the tenant that was given
// the least work goes next, by the cost of its requests (start-time fair queueing: Goyal, Vin and
// Cheng, 1996). Of one tenant, requests of high priority go first. So a tenant that asks for less
// than its share hardly waits, whatever others ask for, and no tenant gains by giving all of its
// requests a high priority.
//
// Requests of one tenant, client and priority begin in the order in which they came.
//
// # Bounds
//
// A request is not let in if its tenant has more requests in the queue than there is room for
// others (dynamic thresholds with factor 1: Choudhury and Hahne, 1998), or if the first of its
// tenant's requests has waited for as long as the limit of that. A tenant within its share is not
// refused for either. There are at most maxTenants tenants; further ones share one place.
//
// The package knows neither requests nor nodes. It imports nothing of Tidemark, starts no goroutine
// and has no clock of its own.
package workqueue
