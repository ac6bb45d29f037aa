// Command tidemark is all of Tidemark in one binary: servers, administration, data verbs and
// benchmarks.
//
// It converts flags to calls of the SDK (kv), of the package that starts servers (deploy/embedded)
// and of the load generator (bench), and converts results to text. There is one file for each verb.
// A verb is a method of app that returns its cobra.Command. No verb reads os.Args, the environment
// or the standard streams itself: it gets them from app, so that tests run many verbs at once in
// one process.
//
// Errors say what happened, to which object, and what to do. internal/exit maps errors to exit
// codes, and internal/argument parses flags and arguments.
package main
