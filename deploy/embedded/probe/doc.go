// Package probe serves pages over HTTP about the state of a server: /livez and /readyz, with a page
// below them for each check, in the format of etcd's pages of these names.
//
//	GET /readyz              200 "ok", or 503 and the reasons, one a line
//	GET /readyz?verbose      the same, after a line for each check
//	GET /readyz?exclude=NAME without the check of that name; a name that there is not is overlooked
//	GET /readyz/NAME         one check
//
// A page as a whole depends only on the checks that count (Check.Counts). The other checks can be
// asked for by name: etcd's checks are only about its service, and a server has more functions.
// With ?verbose they are run and shown as well.
//
// The package imports nothing of this project.
package probe
