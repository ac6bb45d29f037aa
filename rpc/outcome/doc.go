// Package outcome determines whether a call of the service Cluster that has failed may have been
// executed.
//
// The callers of the service repeat a call at one server after another until there is an answer.
// An attempt without an answer may have been executed, and so may an attempt at a member of the
// core that could not complete its command. The outcome of the call is unknown then, if the call
// ends without success, unless its method says otherwise (its idempotency level in cluster.proto).
package outcome
