// Package certs makes certificate authorities and certificates: enough to try TLS, and for a small
// cluster that has no authority of its own to ask. Keys are ECDSA over P-256 (FIPS 186-5).
package certs
