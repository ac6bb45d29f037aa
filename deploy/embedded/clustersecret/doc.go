// Package clustersecret reads and makes the secret by which the servers of a cluster without TLS
// know each other: one line of hexadecimal digits in a file that its owner alone may read.
package clustersecret
