// Command tidemark is the whole of Tidemark in one binary: servers, administration, data verbs and
// benchmarks.
//
// It turns flags into calls of the SDK (kv), of the wiring (deploy/embedded) and of the load
// generator (bench), and what comes back into words. There is one file for each verb; a verb is a
// method of app that returns its cobra.Command. No verb reads os.Args, the environment or the
// standard streams itself: they come in through app, so that tests run verbs in the process, many
// at once.
//
// Errors are readable: what happened, to what, and what to do. internal/exit maps them to exit
// codes, and internal/argument reads what flags and arguments mean.
package main
