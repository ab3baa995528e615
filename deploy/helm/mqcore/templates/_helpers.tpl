{{- define "mqcore.fullname" -}}
{{- printf "%s-mqcore" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "mqcore.namesrv" -}}
{{ include "mqcore.fullname" . }}-namesrv
{{- end }}

{{- define "mqcore.labels" -}}
{{ include "mqcore.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "mqcore.selector" -}}
app.kubernetes.io/name: mqcore
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mqcore.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* HOST:PORT of each name server, by a semicolon. */}}
{{- define "mqcore.addresses" -}}
{{- $addresses := .Values.namesrv.addresses -}}
{{- if .Values.namesrv.enabled -}}
{{- $name := include "mqcore.namesrv" . -}}
{{- range $index := until (int .Values.namesrv.replicas) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s.%s.svc:9876" $name $index $name $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- required "namesrv.addresses: expected one HOST:PORT at least, or namesrv.enabled" (join ";" $addresses) -}}
{{- end }}

{{- define "mqcore.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10911
runAsGroup: 10911
fsGroup: 10911
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "mqcore.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Settings as TOML. Numbers of values are floats; what is whole is written so. */}}
{{- define "mqcore.toml" -}}
{{- range $section, $keys := .Values.broker.settings }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{ $key }} = {{ int64 $value }}
{{- else }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{ end }}
{{- end }}
