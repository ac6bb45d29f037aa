// Package web has what the HTTP addresses of a server need beside their pages: a server on a
// listener of its own (Server) or on connections that another listener has accepted (Handed), debug
// pages that are for administrators (Administrators), and handlers that are limited or waited for.
package web
