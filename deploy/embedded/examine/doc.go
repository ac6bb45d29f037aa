// Package examine is a server's part in finding faults. An Examiner implements the service
// Diagnosis: it reports what the server knows about itself and its machine, pings other servers,
// and collects profiles, metrics and the last lines of the log. It has no state of its own, and
// asks the server's parts at each call.
//
// Clients call the service Cluster, which checks their rights and has an Examiner forward the call
// (Ask). Calls are forwarded only to addresses of servers of the cluster, because they carry the
// proof of a server.
package examine
