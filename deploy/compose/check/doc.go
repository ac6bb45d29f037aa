// Package check tests that the Compose file is valid, and that the files it names exist. It has
// tests only.
package check
