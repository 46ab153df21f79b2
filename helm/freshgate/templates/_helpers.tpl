{{/* Names are fixed: one operator serves a namespace, so two releases that would meet in one must not both install. */}}
{{- define "freshgate.name" -}}freshgate-operator{{- end }}

{{- define "freshgate.labels" -}}
{{ include "freshgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: freshgate
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* NetworkPolicies of the services let in pods with this name. */}}
{{- define "freshgate.selector" -}}
app.kubernetes.io/name: freshgate-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "freshgate.user" -}}system:serviceaccount:{{ .Release.Namespace }}:{{ include "freshgate.name" . }}{{- end }}

{{/* Not empty where the operator may touch pods: only under the policy that binds it to one annotation. */}}
{{- define "freshgate.touchesPods" -}}
{{- if not .Values.namespaces }}yes{{ end }}
{{- end }}

{{/* Not empty where sidecars are injected. */}}
{{- define "freshgate.injects" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
{{- if and .Values.sidecars.enabled (not .Values.namespaces) $served }}yes{{ end }}
{{- end }}

{{/* What the restricted Pod Security Standard asks of a container, and a root file system that cannot be written. */}}
{{- define "freshgate.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{- define "freshgate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
