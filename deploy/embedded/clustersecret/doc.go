// Package clustersecret reads and makes the secret with which the servers of a cluster without TLS
// authenticate each other: one line of hexadecimal digits in a file that only its owner may read.
package clustersecret
