// Command overlay prepares a build with a planted mistake: it writes changed copies of the files
// and prints the path of the file for `go build -overlay`. Without a name it lists the mistakes.
package main
